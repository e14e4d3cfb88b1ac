"""The names of the columns in records' keys, with and without the library."""

from __future__ import annotations

import json
from random import Random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.batches import key_names as module
from ingest.batches.key_names import MOST_KEYS, first_keys, key_names, keys_of, union_of_keys
from ingest.jvm.library import tasks_have_library
from tests.property.test_schema_novelty import json_object

_SEED = 5
_SCHEMA = '{"type":"struct","fields":[{"type":"int64","optional":false,"field":"id"}],"name":"Key"}'
_EXAMPLES = {
    None: [],
    b'{"id":1}': ["id"],
    b'{"id":-20}': ["id"],
    b'{"id":0}': ["id"],
    b'{"id":01}': None,
    b'{"id":1x}': None,
    b'{"id":1.5}': ["id"],
    b'{"id":1,"region":"eu"}': ["id", "region"],
    b'{"region":"eu","id":1}': ["region", "id"],
    b'{"id":1,"region":"e\\"u"}': ["id", "region"],
    '{"id":1,"region":"ü"}'.encode(): ["id", "region"],
    b'{"id":1,"region":"eu"': None,
    b'{"id":1,"region":"eu"}}': ["id", "region"],
    b'{"id":1,"region":"e\nu"}': None,
    b'{ "id": 1 }': ["id"],
    b'{"id":null}': ["id"],
    b'{"id":{"a":1}}': ["id"],
    b'{"id":1,"id":1}': None,
    b'{"\\u0069d":1}': ["id"],
    b'{"i\\"d":1}': ['i"d'],
    f'{{"schema":{_SCHEMA},"payload":{{"id":1}}}}'.encode(): ["id"],
    f'{{"schema":{_SCHEMA},"payload":{{"id":2,"x":"y"}}}}'.encode(): ["id", "x"],
    f'{{"schema":{_SCHEMA},"payload":{{"id":2}},"x":1}}'.encode(): ["schema", "payload", "x"],
    f'{{"schema":{_SCHEMA},"payload":{{"id":2}}'.encode(): None,
    f'{{"payload":{{"id":2}},"schema":{_SCHEMA}}}'.encode(): ["id"],
    b'{"schema":null,"payload":null}': ["schema", "payload"],
    b'{"payload":5}': ["payload"],
    b'{"id":1,"payload":"a"}': ["id", "payload"],
    b'{"payload":"{\\"id\\":5}"}': ["payload"],
    b'{"payload":{"id":5}}': ["id"],
    b"{}": None,
    b"": None,
    b"7": None,
    b'"id"': None,
    b"[1]": None,
    b"\xff": None,
}
"""Keys, and the names in each."""

Keys = list[bytes | None]


def _names(spark: SparkSession, keys: Keys) -> list[list[str] | None]:
    rows = [(n, key and bytearray(key)) for n, key in enumerate(keys)]
    frame = spark.createDataFrame(rows, "n int, key binary").coalesce(1)
    found = frame.select("n", key_names(spark, F.col("key")).alias("names")).collect()
    return [None if row.names is None else json.loads(row.names) for row in sorted(found)]


@pytest.fixture(params=[True, False], ids=["library", "sql"])
def lane(request: pytest.FixtureRequest, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    if not request.param:
        monkeypatch.setattr(module, "names_in_key", lambda spark, key: None)
    elif not tasks_have_library(spark.sparkContext):
        pytest.skip("the library is off")
    return spark


@pytest.mark.spark
def test_names_of_keys(lane: SparkSession) -> None:
    """In either order: a key is compared with those before it."""
    for keys in (list(_EXAMPLES), list(_EXAMPLES)[::-1]):
        found = dict(zip(keys, _names(lane, keys), strict=True))
        assert found == _EXAMPLES


@pytest.mark.spark
def test_library_finds_the_names_that_sql_finds(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    if not tasks_have_library(spark.sparkContext):
        pytest.skip("the library is off")
    random = Random(_SEED)
    keys: Keys = []
    for n in range(3000):
        text = json_object(random, 1, odd=False)
        text = f'{{"schema":{_SCHEMA},"payload":{text}}}' if random.random() < 0.3 else text
        cut = random.randint(0, len(text)) if not n % 10 else len(text)
        keys.append(text[:cut].encode())
    found = _names(spark, keys)
    monkeypatch.setattr(module, "names_in_key", lambda spark, key: None)
    assert found == _names(spark, keys), _SEED
    assert len({json.dumps(one) for one in found}) > 50


def test_too_many_keys_are_not_known() -> None:
    names = [json.dumps([str(n)]) for n in range(MOST_KEYS + 1)]
    most = keys_of(names[1:])
    assert most is not None
    assert len(most) == MOST_KEYS
    assert keys_of(names) is None
    assert union_of_keys(most, (("0",),)) is None
    assert union_of_keys(most, most[:1]) == most
    assert union_of_keys(most, None) is None


@pytest.mark.spark
def test_first_keys_of_all_tables(spark: SparkSession) -> None:
    a, b, broken = b'{"a":1}', b'{"b":1,"a":2}', b"7"
    keys: dict[str, list[bytes | None]] = {
        "one": [a, b],
        "other": [b, a],
        "keyless": [None, None],
        "keyed later": [None, a],
        "keyless later": [a, None],
        "unreadable": [broken, a],
        "unreadable later": [a, broken],
        "empty": [b"", a],
    }
    rows = [
        (table, "u", key and bytearray(key), offset, "t", 0, offset)
        for table, found in keys.items()
        for offset, key in enumerate(found, 1)
    ]
    rows += [("one", "m", bytearray(b), 0, "t", 0, 0), ("deleted", "tombstone", bytearray(a), 0, "t", 0, 0)]
    columns = "source_table string, op string, key binary, offset long, topic string, partition int, position long"
    assert first_keys(spark.createDataFrame(rows[::-1], columns)) == {
        "one": ("a",),
        "other": ("b", "a"),
        "keyless": (),
        "keyed later": (),
        "keyless later": ("a",),
        "unreadable": None,
        "unreadable later": ("a",),
        "empty": None,
    }
