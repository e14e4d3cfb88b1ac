"""An Airflow task that runs an `ingest` command by spark-submit. Imported only for pipelines with `submit: spark`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException

from airflow_dags.job import emit, failure
from ingest.errors import EXIT_USER


class SubmittedJob(SparkSubmitOperator):
    """A SparkSubmitOperator that does not retry errors that the user has to correct.

    Only exit code 2 tells them: spark-submit also ends with 1 if it can't reach the cluster, and in cluster mode it
    doesn't know the job's own code.
    """

    template_fields = tuple(field for field in SparkSubmitOperator.template_fields if field != "application_args")

    def __init__(self, *, arguments: Sequence[str], assets: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(application_args=list(arguments), **kwargs)
        self.arguments = list(arguments)
        self.assets = assets

    def execute(self, context: Context) -> None:
        try:
            super().execute(context)
        except AirflowException as failed:
            submitter = self._hook._submit_sp if self._hook is not None else None
            if submitter is not None and submitter.returncode == EXIT_USER:
                raise failure(EXIT_USER, f"ingest {self.arguments[0]}") from failed
            raise
        emit(context, self.assets)
