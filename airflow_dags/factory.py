"""From pipeline files to DAGs.

Of a pipeline `shop`: `shop.run` (where its file says when), `shop.backfill`, `shop.upkeep` and `shop.verify`; where its
tables lead to subjects, `shop.erase`. What changes silver emits the asset `silver/shop` once all of it is done, and
`silver/shop/TABLE` for each table that the file names under `airflow: tables`. A window of a backfill emits them with
its partition key: the time of its beginning.
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
    """The variables of this process. One that only the jobs have, such as a secret, reads as its own name."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return name


def dags_of(conf: Path, environment: Mapping[str, str] = os.environ) -> Iterator[DAG]:
    """The DAGs of each file in `conf/pipelines`.

    One that can't be loaded takes no other's DAGs away, as an error here would: it has a single DAG, `NAME.refused`,
    which says why.
    """
    conf = conf.resolve()
    named: dict[str, Path] = {}
    for file in sorted((conf / "pipelines").glob("*.yaml")):
        try:
            pipeline = _loaded(file, environment, named)
        except ConfigError as error:
            yield _refused(file, str(error))
        else:
            yield from PipelineDags(pipeline, file, conf.parent)


def _loaded(file: Path, environment: Mapping[str, str], named: dict[str, Path]) -> Pipeline:
    """The pipeline of `file`. `named`: the file of each name so far."""
    pipeline = load(file, _Environment(environment))
    other = named.setdefault(path_segment(pipeline.name), file)
    if other is not file:
        raise ConfigError(f"{file} says the same name as {other}", "give one of them another")
    return pipeline


def _refused(file: Path, why: str) -> DAG:
    with DAG(f"{path_segment(file.stem)}.refused", description=why, schedule=None, tags=["ingest", "refused"]) as dag:

        @task
        def refused() -> None:
            raise AirflowFailException(why)

        refused()
    return dag
