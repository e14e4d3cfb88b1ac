"""Messages of the source's triggers, as Debezium sent them, name their table and stand below the events that follow."""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ingest.backfill.replay import Case, Delivery, replay
from ingest.changelog.envelope import RECORD, events
from ingest.changelog.naming import Naming
from ingest.errors import ConfigError
from ingest.evolution.definition import Origin
from ingest.lakehouse.schema_history import SchemaHistory
from ingest.names import Lakehouse
from ingest.pipeline.definition_changes import definition_changes, table_changes

pytestmark = pytest.mark.spark
RECORDED = Path(__file__).parents[1] / "connector" / "recorded" / "ddl.jsonl"


def recorded() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORDED.read_text().splitlines()]


def frame(spark: SparkSession, records: list[dict[str, Any]]) -> DataFrame:
    def written(part: Any) -> bytes | None:
        return None if part is None else json.dumps(part).encode()

    rows = [
        (r["topic"], r["partition"], r["offset"], None, None, written(r["key"]), written(r["value"])) for r in records
    ]
    return spark.createDataFrame(rows, RECORD)


def told(records: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Returns the content of each message by its offset."""
    values = {r["offset"]: r["value"]["payload"] for r in records if r["topic"].endswith(".message")}
    return {n: json.loads(base64.b64decode(payload["message"]["content"])) for n, payload in values.items()}


def test_message_names_the_table_that_it_tells_of(spark: SparkSession) -> None:
    records = recorded()
    rows = (
        events(frame(spark, records), Naming()).where("op = 'm'").select("offset", "source_table", "problem").collect()
    )
    assert {row["offset"]: row["source_table"] for row in rows} == {
        offset: f"{content['schema']}.{content['table']}" for offset, content in told(records).items()
    }
    assert {row["problem"] for row in rows} == {None}
    assert len(rows) > 30


def test_every_event_stands_between_the_messages_around_it_in_its_transaction(spark: SparkSession) -> None:
    """An event has the columns of the newest message below it, also at an equal LSN. One that Debezium decoded late may
    have columns of a later definition too."""
    records = recorded()
    contents = told(records)
    rows = events(frame(spark, records), Naming()).orderBy("position").collect()
    known: dict[str, set[str]] = {}
    equal = compared = ties = 0
    places = [(row["source_table"], row["op"], row["position"]) for row in rows]
    for before, after in pairwise(places):
        ties += before[1] == "m" and before[2][1:4] == after[2][1:4] and after[1] != "m"
    for row in rows:
        if row["op"] == "m":
            content = contents[row["offset"]]
            known[row["source_table"]] = {c["name"] for c in content["columns"] if c["sent"]}
        elif row["op"] in ("c", "u") and row["source_table"] in known:
            after = json.loads(bytes(row["value"]))["payload"]["after"]
            assert known[row["source_table"]] <= set(after), (row["source_table"], row["position"])
            equal += known[row["source_table"]] == set(after)
            compared += 1
    assert equal > 20
    assert compared - equal < 3
    assert ties > 0, "the recorded messages share no LSN with an event"


@pytest.mark.parametrize(
    "encoded",
    [base64.b64encode, base64.urlsafe_b64encode, lambda content: content.hex().encode()],
    ids=["base64", "base64-url-safe", "hex"],
)
def test_contents_are_read_in_each_form_of_the_connector(spark: SparkSession, encoded: Any) -> None:
    content = b'{"v":1,"schema":"a.b","table":"t\\u00fc??>>~~","columns":[]}'
    message = {"prefix": "ingest_ddl", "content": encoded(content).decode()}
    value = {"op": "m", "source": {"connector": "postgresql", "schema": "", "table": "", "lsn": 7}, "message": message}
    record = {"topic": "shop.message", "partition": 0, "offset": 0, "key": None, "value": value}
    (row,) = (
        events(frame(spark, [record, record | {"value": {"payload": value}}]), Naming())
        .select("source_table", "position.streamed")
        .distinct()
        .collect()
    )
    assert (row["source_table"], row["streamed"]) == ("a.b.tü??>>~~", -1)


def test_other_messages_and_damaged_ones_name_no_table(spark: SparkSession) -> None:
    source = {"connector": "postgresql", "schema": "", "table": "", "lsn": 7}
    contents = [("outbox", "e30="), ("ingest_ddl", "%%%"), ("ingest_ddl", "e30=")]
    records = [
        {
            "topic": "shop.message", "partition": 0, "offset": n, "key": None,
            "value": {"op": "m", "source": source, "message": {"prefix": prefix, "content": content}},
        }
        for n, (prefix, content) in enumerate(contents)
    ]  # fmt: skip
    rows = events(frame(spark, records), Naming()).orderBy("offset").collect()
    assert [row["source_table"] for row in rows] == [None, "ingest_ddl", "ingest_ddl"]


@pytest.mark.long
@pytest.mark.parametrize("delivery", [Delivery(), Delivery(7, 3, True)], ids=["one batch", "shuffled"])
def test_merge_keeps_the_messages_of_a_table(spark: SparkSession, tmp_path: Path, delivery: Delivery) -> None:
    list(replay(spark, [Case("ddl", (RECORDED,), None, tmp_path / "ddl")], delivery, "jsonl"))
    history = SchemaHistory(spark, Lakehouse(str(tmp_path / "ddl")).schemas, "ddl")
    assert {"ddl.orders", "ddl.items", "ddl.bags", "ddl.logs", "ddl.buys", "ddl.sales_26"} <= {*history.all_told()}
    versions = [one.version for one in history.all_told()["ddl.items"] if one.version is not None]
    assert [tuple(c.name for c in version.definition.columns) for version in versions] == [
        ("id", "n"), ("id", "n", "a"), ("id", "a"), ("id", "a", "c"),
    ]  # fmt: skip
    changes = definition_changes(history.all_told()["ddl.items"])
    assert [change.text for change in changes] == [
        "columns id integer, n integer; key (id)",
        "column a added; rows from before read 4",
        "column n dropped",
        "column c added; rows from before read 7",
    ]
    assert all(change.at is not None for change in changes)
    shown = table_changes(spark, "ddl", Lakehouse(str(tmp_path / "ddl")), "ddl.items")
    assert [change.text for change in shown if change.origin == Origin.TOLD] == [change.text for change in changes][1:]
    assert shown[0].kind == "first", "the snapshot shows columns before the first message"
    assert "id" in shown[0].text
    with pytest.raises(ConfigError, match=r"did you mean ddl\.items"):
        table_changes(spark, "ddl", Lakehouse(str(tmp_path / "ddl")), "items")
    kinds = [
        (change.kind, change.remedy is not None) for change in definition_changes(history.all_told()["ddl.orders"])
    ]
    for expected in (
        ("add.column", True),
        ("add.column", False),
        ("alter.column.type", True),
        ("rename.column", False),
    ):
        assert expected in kinds
