"""The window of a backfill run: its bounds and its jobs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import task
from airflow.sdk.exceptions import AirflowFailException
from croniter import croniter  # type: ignore[import-untyped]


@task
def jobs_of_window(
    pipeline: str,
    cron: str,
    assets: Mapping[str, str],
    params: Mapping[str, Any] | None = None,
    partition_date: datetime | None = None,
) -> list[dict[str, list[str]]]:
    """Returns the job arguments of a window: one job for each table, or one for all if none is named.

    The window is the run's partition, from `partition_date` to the next time of `cron`, or the one in the run's
    parameters. `assets`: table → asset.
    """
    params = params or {}
    start, end = _window(params, cron, partition_date)
    if end > datetime.now(UTC):
        raise AirflowFailException(
            f"the window ends at {end.isoformat()}, and records may still be written until then → choose an earlier end"
        )
    command = ["backfill", pipeline, f"--from={start.isoformat()}", f"--to={end.isoformat()}"]
    if params.get("source"):
        command.append(f"--source={params['source']}")
    tables = params.get("tables") or []
    if not tables:
        return [{"arguments": command, "assets": list(assets.values())}]
    return [
        {"arguments": [*command, f"--table={table}"], "assets": [assets[table]] if table in assets else []}
        for table in dict.fromkeys(tables)
    ]


def _window(params: Mapping[str, Any], cron: str, partition_date: datetime | None) -> tuple[datetime, datetime]:
    if params.get("from") and params.get("to"):
        start, end = (datetime.fromisoformat(params[key]) for key in ("from", "to"))
        return start.astimezone(UTC), end.astimezone(UTC)
    if partition_date is None:
        raise AirflowFailException(
            "this run has no window → `airflow backfill create` makes a run for each, or give both from and to"
        )
    start = datetime.fromtimestamp(partition_date.timestamp(), UTC)
    return start, croniter(cron, start).get_next(datetime)
