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
    """Read by `airflow_dags/`: when what is run, and by which program."""

    run: Cron | None = Field(
        default=None,
        description="When to capture and merge what is new. Without it no DAG does: the pipeline runs as a stream.",
    )
    backfill: Cron = Field(
        default="@daily", description="Where one window of a backfill ends and the next begins. Run on request only."
    )
    upkeep: Cron = Field(default="@daily", description="When to archive, and old tombstones and files go.")
    verify: Cron = Field(default="@daily", description="When to look whether the accounts add up and silver is right.")
    erase: Cron = Field(
        default="@daily", description="When to remove what was asked to be erased, where tables lead to subjects."
    )
    tables: tuple[Table, ...] = Field(
        default=(),
        description="Tables that have an asset and, in a backfill, a task of their own. Without it one is for all.",
    )
    submit: Literal["cli", "spark"] = Field(
        default="cli",
        description="cli: the program `command`, where the worker is. spark: spark-submit, by SparkSubmitOperator.",
    )
    command: Text = Field(
        default="ingest",
        description="The program for cli; a relative path begins at the folder that holds conf.",
    )
    application: Text = Field(
        default="jobs/command.py",
        description="The job for spark; a relative path begins at the folder that holds conf.",
    )
    conn_id: Text = Field(default="spark_default", description="Airflow's connection to the cluster, for spark.")
    pool: Text = Field(
        default="default_pool", description="Every job takes one slot of it. It has to exist: `airflow pools set`."
    )
    retries: NonNegativeInt = Field(default=3, description="Of a job that died, or whose error may pass.")
    retry_delay_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=60, description="Pause in seconds before a retry."
    )
