"""The DAGs of one pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, AssetAlias, BaseOperator, CronPartitionTimetable, CronTriggerTimetable, Param

from airflow_dags.submission import submission
from airflow_dags.window import jobs_of_window
from ingest.config import Pipeline
from ingest.names import path_segment

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class PipelineDags:
    """Makes the DAGs of a pipeline. `file`: the pipeline's. `root`: the folder that holds `conf`, in which jobs run."""

    def __init__(self, pipeline: Pipeline, file: Path, root: Path) -> None:
        self._settings = pipeline.airflow
        self._archived = pipeline.archive is not None
        # False if a connector writes the archive.
        self._archives = pipeline.archive is not None and pipeline.archive.layout == "ingest"
        self._erases = pipeline.privacy is not None
        self._file = str(file)
        self._id = path_segment(pipeline.name)
        self._silver = f"silver/{self._id}"
        # Airflow serializes str, but not its subclass TableName.
        self._assets = {str(table): f"{self._silver}/{path_segment(table)}" for table in pipeline.airflow.tables}
        self._operator, self._common = submission(pipeline, root)

    def __iter__(self) -> Iterator[DAG]:
        if self._settings.run is not None:
            yield self._run(self._settings.run)
        yield self._backfill()
        yield self._upkeep()
        yield self._verify()
        if self._erases:
            yield self._erase()

    def _run(self, cron: str) -> DAG:
        with self._dag("run", cron, "Capture and merge new records.") as dag:
            changed = [Asset(name) for name in (self._silver, *self._assets.values())]
            self._job("run", "run", self._file, "--available-now", outlets=changed)
        return dag

    def _backfill(self) -> DAG:
        cron = self._settings.backfill
        with DAG(
            f"{self._id}.backfill",
            description="Backfill windows of history, on request: `airflow backfill create`.",
            # Runs are created on request only: the end date keeps the scheduler from creating any.
            schedule=CronPartitionTimetable(cron, timezone="UTC"),
            start_date=_LONG_AGO,
            end_date=_LONG_AGO,
            **self._common_arguments(),
            params={
                "tables": Param(list(self._assets), type="array", items={"type": "string"}),
                "source": Param(None, enum=[None, "bronze", "archive", "kafka"]),
                "from": Param(None, type=["null", "string"], format="date-time"),
                "to": Param(None, type=["null", "string"], format="date-time"),
            },
        ) as dag:
            jobs = self._operator.partial(
                task_id="backfill",
                # All instances of a mapped task share their outlets; an alias lets each emit its own asset.
                outlets=[AssetAlias(f"{self._silver}/tables")],
                # Two writers of one table would only wait for each other.
                max_active_tis_per_dag=1,
                map_index_template="{{ task.arguments[-1] }}",
                **self._common,
            ).expand_kwargs(jobs_of_window(self._file, cron, self._assets))
            jobs >> EmptyOperator(task_id="silver", outlets=[Asset(self._silver)])
        return dag

    def _upkeep(self) -> DAG:
        with self._dag("upkeep", self._settings.upkeep, "Archive; remove old tombstones and old files.") as dag:
            if self._archives:
                self._job("archive", "archive", "run", self._file)
            self._job("gc", "gc", self._file)
            self._job("vacuum", "vacuum", self._file)
        return dag

    def _verify(self) -> DAG:
        with self._dag("verify", self._settings.verify, "Check the accounts and prove silver.") as dag:
            self._job("accounts", "accounts", self._file)
            # Airflow stores the logs, and more people may read them than may see personal keys.
            self._job("prove", "prove", self._file, *(["--no-keys"] if self._erases else []))
            if self._archived:
                self._job("archive", "archive", "verify", self._file)
        return dag

    def _erase(self) -> DAG:
        with self._dag("erase", self._settings.erase, "Execute requests for erasure, and delete old files.") as dag:
            self._job("erase", "erase", self._file)
        return dag

    def _dag(self, name: str, cron: str, description: str) -> DAG:
        """Returns a scheduled DAG whose jobs run one after the other, because each starts its own Spark."""
        return DAG(
            f"{self._id}.{name}",
            description=description,
            schedule=CronTriggerTimetable(cron, timezone="UTC"),
            start_date=_LONG_AGO,
            catchup=False,
            max_active_runs=1,
            max_active_tasks=1,
            **self._common_arguments(),
        )

    def _job(self, task_id: str, *arguments: str, **settings: Any) -> BaseOperator:
        return self._operator(task_id=task_id, arguments=arguments, **settings, **self._common)

    def _common_arguments(self) -> dict[str, Any]:
        settings = self._settings
        retries = {"retries": settings.retries, "retry_delay": timedelta(seconds=settings.retry_delay_seconds)}
        return {"default_args": retries, "tags": ["ingest", self._id[:100]]}
