"""The configuration of a pipeline's DAGs. Fields that Airflow has a name for have that name."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, NonNegativeInt

from ingest.config.section import Section, Table, Text

_CRON = r"^(@(hourly|daily|weekly|monthly|quarterly|yearly)|\S+( +\S+){4})$"


def _cron(text: str) -> str:
    if re.match(_CRON, text) is None:
        raise ValueError("should be a cron expression of five fields, or a preset such as @daily")
    return text


Cron = Annotated[str, AfterValidator(_cron), Field(json_schema_extra={"pattern": _CRON})]
"""Times are UTC."""


class Airflow(Section):
    """The schedules of a pipeline's DAGs and the program that their tasks run. Read by `airflow_dags/`; times are
    UTC."""

    run: Cron | None = Field(
        default=None,
        description="When to capture and merge new records. Without it there is no such DAG: the pipeline runs as a "
        "stream.",
    )
    backfill: Cron = Field(
        default="@daily",
        description="Where one window of a backfill ends and the next begins. Backfills run on request only.",
    )
    upkeep: Cron = Field(
        default="@daily", description="When to archive new records, and to remove old tombstones and old files."
    )
    verify: Cron = Field(default="@daily", description="When to check the accounts and to prove silver.")
    erase: Cron = Field(
        default="@daily", description="When to execute requests for erasure, if tables lead to subjects."
    )
    tables: tuple[Table, ...] = Field(
        default=(),
        description="Tables that have an asset and, in a backfill, a task of their own. Without it one task is for "
        "all tables.",
    )
    submit: Literal["cli", "spark"] = Field(
        default="cli",
        description="cli: run the program `command` on the worker's machine. spark: run spark-submit, by "
        "SparkSubmitOperator.",
    )
    command: Text = Field(
        default="ingest",
        description="The program for cli. A relative path begins at the folder that holds conf.",
    )
    application: Text = Field(
        default="jobs/command.py",
        description="The job for spark. A relative path begins at the folder that holds conf.",
    )
    conn_id: Text = Field(default="spark_default", description="Airflow's connection to the cluster, for spark.")
    pool: Text = Field(
        default="default_pool",
        description="The pool of which every job takes one slot. It has to exist: `airflow pools set`.",
    )
    retries: NonNegativeInt = Field(
        default=3, description="How often to retry a job that died, or failed with an error that may pass."
    )
    retry_delay_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=60, description="Pause in seconds before a retry."
    )
