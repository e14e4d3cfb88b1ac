"""Objects of sink connectors are read as the records that were sent, or refused; nothing is guessed."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ingest.archive import ObjectStore
from ingest.errors import Contended
from ingest.failures.conversion import to_ingest_error
from ingest.pipeline.composition import layout_of
from ingest.stack import S3
from tests.archive.connector_objects import Objects, aiven, confluent, confluent_parquet
from tests.archive.connector_shop import DECLARED_KEYS, events, pipeline, stored

pytestmark = [pytest.mark.integration, pytest.mark.long]
FIRST = "shop.orders/partition=0/shop.orders+0+0000000000"
ORDERS = [r for r in events() if r["topic"] == "shop.orders" and r["partition"] == 0]


@pytest.fixture
def store(s3: S3, request: pytest.FixtureRequest) -> ObjectStore:
    bucket = f"sunk-{abs(hash(request.node.name)) % 10**8}"
    boto3.client("s3", **s3.client_options).create_bucket(Bucket=bucket)
    return ObjectStore(f"s3://{bucket}/topics", s3.client_options)


def damages(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, objects: Objects, layout: str = "confluent", **more: Any
) -> list[tuple[str, str, str]]:
    stored(store, objects)
    archive = layout_of(spark, pipeline(tmp_path, store, layout, **more))
    return [(d.key, d.what, d.events) for d in archive.damages(spark, archive.objects(), lambda _: None)]


def damaged_objects(name: str, harm: Callable[[bytes], bytes]) -> Objects:
    found = confluent(events(tombstones=False), 4)
    return found | {name: harm(found[name])}


def without(objects: Objects, *names: str) -> Objects:
    return {name: body for name, body in objects.items() if name not in names}


@pytest.mark.parametrize(
    ("objects", "key", "what"),
    [
        (
            confluent(events(), 5),
            "shop.orders/partition=0/shop.orders+0+0000000005.json",
            "holds 4 records where 2 offsets were",
        ),
        (
            confluent([r for r in events() if r["value"]], 4),
            "shop.orders/partition=0/shop.orders+0+0000000004.json",
            "holds 4 records where 5 offsets were",
        ),
        (
            without(
                confluent(events(tombstones=False), 2, keys=False),
                "shop.items/partition=0/shop.items+0+0000000002.json",
            ),
            "shop.items/partition=0/shop.items+0+0000000000.json",
            "holds 2 records where 4 offsets were",
        ),
        (damaged_objects(f"{FIRST}.json", lambda b: b[:-9]), f"{FIRST}.json", "is truncated: its last line has no end"),
        (
            damaged_objects(f"{FIRST}.json", lambda b: b""),
            f"{FIRST}.json",
            "holds 0 values, and the object with their keys 4",
        ),
        (damaged_objects(f"{FIRST}.keys.json", lambda b: b * 2), f"{FIRST}.json", "the object with their keys 8"),
        (
            {f"{FIRST}.json": b"null\n"},
            f"{FIRST}.json",
            "holds null values, and no keys tell what was deleted",
        ),
        (
            {f"{FIRST}.json.gz": confluent(events(), 4, zipped=True)[f"{FIRST}.json.gz"][:-12]},
            f"{FIRST}.json.gz",
            "can't be read to its end (EOFError)",
        ),
        (
            {
                f"{FIRST}.snappy.parquet": confluent_parquet(events(tombstones=False), 4)[f"{FIRST}.snappy.parquet"][
                    :-12
                ]
            },
            f"{FIRST}.snappy.parquet",
            "can't be read to its end (ArrowInvalid)",
        ),
    ],
    ids=[
        "tombstones between values",
        "tombstones left out",
        "an object missing",
        "a line cut off",
        "empty",
        "more keys than values",
        "null values without keys",
        "gzip cut off",
        "Parquet cut off",
    ],
)
def test_missing_offsets_are_never_guessed(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, objects: Objects, key: str, what: str
) -> None:
    found = damages(spark, tmp_path, store, objects, **DECLARED_KEYS)
    assert [(k, what in w) for k, w, _ in found if k == key] == [(key, True)], found
    assert "offsets " in found[0][2]


def fields_without(*names: str) -> Objects:
    return aiven(ORDERS, 4, *names)


@pytest.mark.parametrize(
    ("objects", "more", "what"),
    [
        (aiven(ORDERS, 4), {}, None),
        (fields_without("key"), {}, "holds records without key"),
        (fields_without("key"), DECLARED_KEYS, None),
        (fields_without("offset", "key"), {}, "holds records without key, offset (format.output.fields)"),
        (fields_without("timestamp"), {}, None),
        (fields_without("timestamp"), {"source": {"epochs": ["1970-01-01T02:00:00Z"]}}, "records without timestamp"),
        (aiven(ORDERS[:2] + ORDERS[3:], 4), {}, "holds 4 records where 5 offsets were"),
        (aiven(ORDERS[:2] + ORDERS[3:], 4), {"archive": {"gaps": "ignore"}}, None),
        ({"shop.orders-0-3": b'{"key":1,"value":null,"offset":4}'}, {}, "begins with offset 4, and is named after 3"),
        ({"shop.orders-0-0": b"a2V5,dmFsdWU=,0"}, {}, "begins with no line of JSON (format.output.type=jsonl)"),
        ({"shop.orders-0-0": b'[\n{"key":1,"value":null,"offset":0}\n]'}, {}, "begins with no line of JSON"),
        ({"shop.orders-0-0": b'{"key":1,"value":null,"offset":0}\n{"key":1,"val'}, {}, "can't be read to its end"),
    ],
)
def test_offsets_in_records_are_checked(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, objects: Objects, more: dict[str, Any], what: str | None
) -> None:
    found = damages(spark, tmp_path, store, objects, "aiven", **more)
    assert [w for _, w, _ in found if what is None or what not in w] == []
    assert bool(found) == (what is not None)


def test_object_rewritten_after_the_listing_is_refused(spark: SparkSession, tmp_path: Path, store: ObjectStore) -> None:
    shop = pipeline(tmp_path, store, "confluent")
    stored(store, confluent(events(tombstones=False), 4))
    archive = layout_of(spark, shop)
    listed = archive.objects()
    stored(store, {f"{FIRST}.json": b"{}\n" * 4})
    with pytest.raises((PySparkException, Py4JError)) as failed:
        archive.damages(spark, listed, lambda _: None)
    ingest_error = to_ingest_error(failed.value, shop)
    assert isinstance(ingest_error, Contended)
    assert f"{FIRST}.json in bucket {store.bucket} was rewritten since" in ingest_error.problem


PRECISE = '{"before": null, "after": {"id": 1, "v": 10000000000000000.10}, "op": "c"}'
HEADERS = '[{"key": "trace", "value": "1"}, {"key": "none", "value": null}]'


@pytest.mark.parametrize(
    ("layout", "objects"),
    [
        (
            "confluent",
            {
                f"{FIRST}.json": f"{PRECISE}\n{json.dumps(PRECISE)}\n",
                f"{FIRST}.keys.json": '{"id": 1}\n"{\\"id\\": 1}"\n',
                f"{FIRST}.headers.json": f'{{"headers": {HEADERS}}}\n' * 2,
            },
        ),
        (
            "aiven",
            {
                "shop.orders-0-0": f'{{"key": {{"id": 1}}, "value": {PRECISE}, "offset": 0, "headers": {HEADERS}}}\n'
                f'{{"value": {json.dumps(PRECISE)}, "offset": 1, "key": "{{\\"id\\": 1}}", "headers": {HEADERS}}}'
            },
        ),
    ],
)
def test_records_keep_every_digit(
    spark: SparkSession, tmp_path: Path, store: ObjectStore, layout: str, objects: dict[str, str]
) -> None:
    """The second object of each layout was written by a converter that sends texts."""
    stored(store, {name: text.encode() for name, text in objects.items()})
    archive = layout_of(spark, pipeline(tmp_path, store, layout))
    for row in archive.records(spark, archive.objects()).collect():
        for text, expected in ((row.key, '{"id": 1}'), (row.value, PRECISE)):
            assert exactly(bytes(text).decode()) == exactly(expected)
        assert [(h.key, h.value and bytes(h.value)) for h in row.headers] == [("trace", b"1"), ("none", None)]


def exactly(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


def test_null_images_of_parquet_stay_null_and_times_are_numbers(
    spark: SparkSession, tmp_path: Path, store: ObjectStore
) -> None:
    image = pa.struct([("id", pa.int32()), ("at", pa.timestamp("ms", "UTC")), ("on", pa.date32()), ("b", pa.binary())])
    rows = [{"before": None, "after": {"id": 1, "at": 1700, "on": 3, "b": b"x"}, "op": "c"}]
    rows += [{"before": {"id": 1, "at": None, "on": None, "b": None}, "after": None, "op": "d"}]
    body = io.BytesIO()
    pq.write_table(
        pa.Table.from_pylist(rows, pa.schema([("before", image), ("after", image), ("op", pa.string())])), body
    )
    stored(store, {f"{FIRST}.parquet": body.getvalue()})
    archive = layout_of(spark, pipeline(tmp_path, store, "confluent", **DECLARED_KEYS))
    found = [bytes(r.value).decode() for r in archive.records(spark, archive.objects()).orderBy("offset").collect()]
    assert found == [
        '{"before":null,"after":{"id":1,"at":1700,"on":3,"b":"eA=="},"op":"c"}',
        '{"before":{"id":1,"at":null,"on":null,"b":null},"after":null,"op":"d"}',
    ]
