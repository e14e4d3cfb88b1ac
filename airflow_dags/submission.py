"""How the jobs of a pipeline are started: by the program on the worker's machine, or by spark-submit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator

from airflow_dags.job import Job
from ingest.config import Pipeline
from ingest.config.properties import is_secret


def submission(pipeline: Pipeline, root: Path) -> tuple[type[BaseOperator], dict[str, Any]]:
    """The operator for the pipeline's jobs, and what it is told for each of them."""
    settings = pipeline.airflow
    common: dict[str, Any] = {"pool": settings.pool}
    if settings.submit == "cli":
        return Job, common | {"program": _located(settings.command, root), "cwd": str(root)}
    from airflow_dags.spark_job import SubmittedJob

    return SubmittedJob, common | {
        "application": _located(settings.application, root),
        "conn_id": settings.conn_id,
        "name": f"ingest {pipeline.name}",
        # What Spark has to know before the job begins. Airflow shows these to its users: secrets the job reads itself.
        "conf": {key: value for key, value in pipeline.spark.items() if not is_secret(key)},
    }


def _located(text: str, root: Path) -> str:
    """A path is meant from `root`; a bare name is looked for on the PATH, a URI is what it is."""
    return text if "/" not in text or "://" in text else str(root / text)
