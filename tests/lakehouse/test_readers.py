"""Readers without Spark see the same tables."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path

import deltalake
import duckdb
import polars
import pyarrow
import pytest
from duckdb_extensions import import_extension
from pyspark.sql import SparkSession

from ingest.backfill.replay import Case, Delivery, replay
from ingest.delta.delta_table import Table
from ingest.spark.prepared import run_prepared
from tests.changelogs import Topic, schema, write

pytestmark = pytest.mark.spark
_NEVER = "9999-12-31 23:59:59.999999"
_BEFORE = "1650-01-01 00:00:00.000001"


@pytest.mark.parametrize("few", [False, True], ids=["many", "few"])
def test_times_outside_of_nanosecond_range_are_read(spark: SparkSession, tmp_path: Path, few: bool) -> None:
    """Such as a "never" or a founding date, which 64 bits of nanoseconds can't hold."""
    import_extension("delta")
    frame = spark.sql(f"SELECT timestamp'{_NEVER}' AS until, timestamp'{_BEFORE}' AS since").coalesce(1)
    Table(spark, str(tmp_path)).commit(
        run_prepared(lambda rows: rows.coalesce(1), (), frame) if few else frame, is_small=few
    )
    until, since = (datetime.fromisoformat(text).replace(tzinfo=UTC) for text in (_NEVER, _BEFORE))
    assert polars.scan_delta(str(tmp_path)).collect().rows() == [(until, since)]
    assert deltalake.DeltaTable(tmp_path).to_pyarrow_table().to_pylist() == [{"until": until, "since": since}]
    scan = f"FROM delta_scan('{tmp_path}') SELECT until AT TIME ZONE 'UTC', since AT TIME ZONE 'UTC'"
    assert duckdb.sql(scan).fetchall() == [(until.replace(tzinfo=None), since.replace(tzinfo=None))]


_DAYS = {"9999-12-31": (2_146_033_979, 2_932_897), "0001-01-01": (-2_147_472_691, -735_160)}
_MICROS = {"9999-12-31 23:59:59.999999": (9223372036825200000, 601060312290123456)}
_MICROS["0001-01-01 00:00:00"] = (-9223372036832400000, -62135596800000001)


def test_out_of_range_times_are_readable_by_every_reader(spark: SparkSession, tmp_path: Path) -> None:
    """Dates and both kinds of timestamp; other values of the rows are kept, and keys stay distinct."""
    import_extension("delta")
    time = "io.debezium.time."
    embedded = schema(
        ("id", "int32"),
        {"field": "day", "type": "int32", "optional": True, "name": f"{time}Date"},
        {"field": "at", "type": "int64", "optional": True, "name": f"{time}MicroTimestamp"},
        {"field": "tz", "type": "string", "optional": True, "name": f"{time}ZonedTimestamp"},
        ("v", "string"),
    )
    topic, rows = Topic(), list[tuple[int, date, datetime, datetime, str]]()
    for end, far in (("9999-12-31", "infinity"), ("0001-01-01", "-infinity")):
        days = _DAYS[end]
        (moment, micros) = next(item for item in _MICROS.items() if item[0].startswith(end))
        for day, at, tz in zip(days, micros, (far, far.replace("infinity", "99999-01-01T00:00:00Z")), strict=True):
            topic.change(
                "c", 10 + len(rows), {"id": len(rows), "day": day, "at": at, "tz": tz, "v": "x"}, schema=embedded
            )
            zoned = datetime.fromisoformat(moment if far == "infinity" else "0001-01-03").replace(tzinfo=UTC)
            rows.append((len(rows), date.fromisoformat(end), datetime.fromisoformat(moment), zoned, "x"))
    folder = write(tmp_path / "events", topic.records, None)
    case = Case("times", (folder / "events.jsonl",), None, tmp_path / "out")
    ((_, summary),) = replay(spark, [case], Delivery(2), "delta")
    assert summary["quarantined"] == 0
    path = str(case.out / summary["tables"]["public.orders"]["file"])
    columns = ["id", "day", "at", "tz", "v"]
    assert polars.scan_delta(path).select(columns).sort("id").collect().rows() == rows
    query = "SELECT id, day, at, tz, v FROM times ORDER BY id"
    builder = deltalake.QueryBuilder().register("times", deltalake.DeltaTable(path))
    frame = pyarrow.table(builder.execute(query).read_all())
    assert [tuple(row.values()) for row in frame.to_pylist()] == rows
    pandas = frame.to_pandas()
    assert [*pandas["at"].dt.year] == [*pandas["tz"].dt.year] == [day.year for _, day, *_ in rows]
    assert [*pandas["day"]] == [day for _, day, *_ in rows]
    scan = f"FROM delta_scan('{path}') SELECT id, day, \"at\", tz AT TIME ZONE 'UTC', v ORDER BY id"
    assert duckdb.sql(scan).fetchall() == [(i, day, at, tz.replace(tzinfo=None), v) for i, day, at, tz, v in rows]
    own = spark.read.format("delta").load(path).select(*columns).orderBy("id")
    local = [(r["id"], r["day"], r["at"], r["tz"].astimezone(UTC), r["v"]) for r in own.collect()]
    assert local == rows


@pytest.mark.parametrize("size", [0, pytest.param(1, marks=pytest.mark.long)])
def test_out_of_range_key_times_stay_distinct(spark: SparkSession, tmp_path: Path, size: int) -> None:
    """Infinite times become the ends of the range; finite ones out of range are quarantined, because two of them would
    become one key."""
    name = {"field": "until", "type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp"}
    embedded, topic = schema(("id", "int32"), name, ("v", "string")), Topic(key=("id", "until"))
    infinite, minus, far = 9223372036825200000, -9223372036832400000, -62200000000000000
    for n, until in enumerate((infinite, minus, 0, far, far - 1)):
        topic.change("c", 10 + n, {"id": 1, "until": until, "v": f"{n}"}, schema=embedded)
    topic.change("u", 20, {"id": 1, "until": infinite, "v": "last"}, schema=embedded)
    topic.change("d", 21, before={"id": 1, "until": minus, "v": "1"}, schema=embedded)
    folder = write(tmp_path / "events", topic.records, None)
    case = Case("keys", (folder / "events.jsonl",), None, tmp_path / "out")
    ((_, summary),) = replay(spark, [case], Delivery(size), "jsonl")
    assert [(q["line"], q["code"]) for q in summary["quarantine"]] == [(3, "undecodable"), (4, "undecodable")]
    assert all("until" in q["reason"] for q in summary["quarantine"])
    lines = (case.out / summary["tables"]["public.orders"]["file"]).read_text(encoding="utf-8").splitlines()
    found = {row["until"]: row["v"] for row in map(json.loads, lines)}
    assert found == {"9999-12-31T23:59:59.999999": "last", "1970-01-01T00:00:00": "2"}
