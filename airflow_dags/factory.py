"""Makes DAGs from pipeline files.

A pipeline `shop` has the DAGs `shop.run` (if its file has a schedule), `shop.backfill`, `shop.upkeep`, `shop.verify`
and, if its tables lead to subjects, `shop.erase`. A DAG that changes silver emits the asset `silver/shop` once it has
finished, and `silver/shop/TABLE` for each table under `airflow: tables` in the file. A window of a backfill emits them
with its partition key, the time of its beginning.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from airflow.sdk import DAG, task
from airflow.sdk.exceptions import AirflowFailException

from airflow_dags.pipeline import PipelineDags
from ingest.config import Pipeline, load
from ingest.errors import ConfigError
from ingest.names import path_segment


class _Environment(dict[str, str]):
    """The variables of this process. A missing one, such as a secret that only the jobs have, reads as its own name."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return name


def dags_of(conf: Path, environment: Mapping[str, str] = os.environ) -> Iterator[DAG]:
    """Yields the DAGs of each file in `conf/pipelines`.

    A file that can't be loaded yields a single DAG, `NAME.refused`, which says why: an exception here would remove the
    DAGs of all other files too.
    """
    conf = conf.resolve()
    named: dict[str, Path] = {}
    for file in sorted((conf / "pipelines").glob("*.yaml")):
        try:
            pipeline = _load(file, environment, named)
        except ConfigError as error:
            yield _refused_dag(file, str(error))
        else:
            yield from PipelineDags(pipeline, file, conf.parent)


def _load(file: Path, environment: Mapping[str, str], named: dict[str, Path]) -> Pipeline:
    """Returns the pipeline of `file`. `named`: name → file, of the pipelines so far."""
    pipeline = load(file, _Environment(environment))
    other = named.setdefault(path_segment(pipeline.name), file)
    if other is not file:
        raise ConfigError(f"{file} has the same name as {other}", "give one of them another name")
    return pipeline


def _refused_dag(file: Path, why: str) -> DAG:
    with DAG(f"{path_segment(file.stem)}.refused", description=why, schedule=None, tags=["ingest", "refused"]) as dag:

        @task
        def refused() -> None:
            raise AirflowFailException(why)

        refused()
    return dag
