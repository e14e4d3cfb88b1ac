"""Chooses the operator for a pipeline's jobs: the program on the worker's machine, or spark-submit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator

from airflow_dags.job import Job
from ingest.config import Pipeline
from ingest.config.properties import is_secret


def submission(pipeline: Pipeline, root: Path) -> tuple[type[BaseOperator], dict[str, Any]]:
    """Returns the operator class for the pipeline's jobs, and the arguments common to all of them."""
    settings = pipeline.airflow
    common: dict[str, Any] = {"pool": settings.pool}
    if settings.submit == "cli":
        return Job, common | {"program": _resolve(settings.command, root), "cwd": str(root)}
    from airflow_dags.spark_job import SubmittedJob

    return SubmittedJob, common | {
        "application": _resolve(settings.application, root),
        "conn_id": settings.conn_id,
        "name": f"ingest {pipeline.name}",
        # Settings that Spark needs at its start. Airflow shows them to its users, so the job reads secrets itself.
        "conf": {key: value for key, value in pipeline.spark.items() if not is_secret(key)},
    }


def _resolve(text: str, root: Path) -> str:
    """Resolves a path relative to `root`; returns a bare name, which is looked up on the PATH, and a URI unchanged."""
    return text if "/" not in text or "://" in text else str(root / text)
