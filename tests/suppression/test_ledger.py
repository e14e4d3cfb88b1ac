"""The ledger stores requests without personal data, and any later change of it is detected."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.change import quoted
from ingest.errors import ConfigError
from ingest.spark.local_rows import local_rows
from ingest.suppression.cutoff import Cutoff
from ingest.suppression.key_file import read_keys
from ingest.suppression.keyed_hash import key_text, keyed_hash_column
from ingest.suppression.ledger import FOUND, KEY, KEYS, REQUESTED, STATE, Ledger, LedgerEntry, cutoffs

SECRET = "1 " + "5a" * 32
CUTOFF = Cutoff({"shop.ä": {0: 7, 1: 0}}, {"public.members": (0, 12, 0, 0, 1, 6, 0)})


def key_file(folder: Path, text: str = SECRET, mode: int = 0o600) -> str:
    file = folder / "ledger.key"
    file.write_text(text + "\n", encoding="utf-8")
    file.chmod(mode)
    return str(file)


def keys(spark: SparkSession, *rows: tuple[str, str, str]) -> DataFrame:
    """Returns a frame of keys from (request, table, hash)."""
    named = [{"request": r, "table": t, "key_hash": h, "key_version": 1} for r, t, h in rows]
    return local_rows(spark, named, KEYS)


def written(spark: SparkSession, folder: Path) -> Ledger:
    """Returns a ledger with two requests, one of them completed in silver."""
    ledger = Ledger(spark, str(folder / "ledger"), "shop")
    asked = [
        LedgerEntry(REQUESTED, r, "member", "public.members", f"h{r}", 1, "c", "left", CUTOFF.to_json())
        for r in ("a", "b")
    ]
    ledger.append(asked, keys(spark, ("a", "public.members", "ha"), ("b", "public.members", "hb")))
    Ledger(spark, str(folder / "ledger"), "other").append([LedgerEntry(REQUESTED, "c", "member")])
    ledger.append([LedgerEntry(FOUND, "a")], keys(spark, ("a", "public.claims", "h1"), ("a", "public.claims", "h2")))
    Ledger(spark, str(folder / "ledger"), "shop").append(
        [LedgerEntry(STATE, "a", place="silver", state="gone", evidence="e")]
    )
    return ledger


def test_key_file_must_be_private_and_valid(tmp_path: Path) -> None:
    read = read_keys(key_file(tmp_path, f"{SECRET}\n\n12 {'ab' * 40}"))
    assert read.newest == 12
    assert "5a5a" not in repr(read)
    assert read.hash("public.members", "42", 1) != read.hash("public.members", "42") != read.hash("public.claims", "42")
    for text, mode, problem in (
        (SECRET, 0o640, "others may read"),
        ("5a" * 32, 0o600, "no key"),
        ("1 abcd", 0o600, "no key"),
        ("", 0o600, "no key"),
    ):
        with pytest.raises(ConfigError, match=problem) as caught:
            read_keys(key_file(tmp_path, text, mode))
        assert "5a5a" not in str(caught.value)
    with pytest.raises(ConfigError, match="no key file"):
        read_keys(str(tmp_path / "absent"))


def test_missing_or_changed_key_is_detected(tmp_path: Path) -> None:
    read = read_keys(key_file(tmp_path))
    read.require(1, read.check(1))
    with pytest.raises(ConfigError, match="another key"):
        read.require(1, read_keys(key_file(tmp_path, "1 " + "5b" * 32)).check(1))
    with pytest.raises(ConfigError, match="lacks version 2"):
        read.require(2, read.check(1))


def test_cutoff_round_trips_through_json() -> None:
    assert Cutoff.from_json(CUTOFF.to_json()) == CUTOFF


@pytest.mark.spark
@pytest.mark.usefixtures("whole_plans")
@pytest.mark.parametrize("secret", [b"k" * 32, b"k" * 64, b"k" * 100])
def test_spark_and_python_hash_equally_and_the_plan_shows_no_secret(
    spark: SparkSession, tmp_path: Path, secret: bytes
) -> None:
    read = read_keys(key_file(tmp_path, f"1 {secret.hex()}"))
    texts = ["42", "", "ä\0'`", None]
    frame = local_rows(spark, [{"text": t} for t in texts], T.StructType([T.StructField("text", T.StringType())]))
    found = frame.crossJoin(F.broadcast(read.blocks(spark, 1))).select(
        keyed_hash_column(F.lit("public.members"), F.col("text")).alias("h")
    )
    message = [None if t is None else f"public.members\0{t}".encode() for t in texts]
    expected = [None if m is None else hmac.new(secret, m, hashlib.sha256).hexdigest() for m in message]
    assert [r.h for r in found.collect()] == expected
    assert [None if t is None else read.hash("public.members", t) for t in texts] == expected
    plan = found._jdf.queryExecution().toString()
    assert "public.members" in plan
    assert secret.hex() not in plan.lower()
    assert bytes(b ^ 0x36 for b in secret[:8]).hex() not in plan.lower()


@pytest.mark.spark
def test_key_text_is_independent_of_the_column_type(spark: SparkSession) -> None:
    row = spark.sql(
        "SELECT 42 AS a, 42L AS b, CAST(42 AS decimal(12,2)) AS c, '42' AS d, CAST(42.5 AS decimal(12,2)) AS e, "
        "X'00ff' AS f, CAST(100 AS decimal(10,0)) AS g, CAST(null AS int) AS h, 'a,\"' AS `i.j`"
    )
    types = {f.name: f.dataType for f in row.schema}

    def text(*names: str) -> str | None:
        found = row.select(key_text([(quoted(n), types[n]) for n in names]).alias("text")).first()
        assert found is not None
        return None if found.text is None else str(found.text)

    assert [text(c) for c in "abcdefgh"] == ["42", "42", "42", "42", "42.5", "00ff", "100", None]
    assert text("a", "i.j") == '["42","a,\\""]'
    assert text("a", "h") is None


@pytest.mark.spark
def test_entries_are_numbered_and_hold_the_requests(spark: SparkSession, tmp_path: Path) -> None:
    ledger = written(spark, tmp_path)
    entries = list(ledger.entries())
    assert [(e.number, e.kind, e.request, e.keys) for e in entries] == [
        (1, REQUESTED, "a", 1),
        (2, REQUESTED, "b", 1),
        (3, FOUND, "a", 2),
        (4, STATE, "a", 0),
    ]
    assert cutoffs(entries) == {"a": CUTOFF, "b": CUTOFF}
    assert {(r.request, r.key_hash) for r in ledger.keys().collect()} == {
        ("a", "ha"),
        ("b", "hb"),
        ("a", "h1"),
        ("a", "h2"),
    }
    assert list(ledger.verify()) == []
    assert list(Ledger(spark, str(tmp_path / "none"), "shop").verify()) == []


@pytest.mark.spark
def test_concurrent_appends_are_numbered_consecutively(spark: SparkSession, tmp_path: Path) -> None:
    one, other = (Ledger(spark, str(tmp_path / "ledger"), "shop") for _ in range(2))
    for n in range(3):
        one.append([LedgerEntry(REQUESTED, f"one {n}")])
        other.append([LedgerEntry(REQUESTED, f"other {n}"), LedgerEntry(STATE, f"other {n}")])
    assert [e.number for e in one.entries()] == list(range(1, 10))
    assert list(other.verify()) == []


def change(number: int, column: str, value: str, kind: str | None = None) -> Callable[[DeltaTable], None]:
    def changed(table: DeltaTable) -> None:
        which = F.col("kind") == kind if kind else F.col("kind") != KEY
        table.update(of_pipeline() & (F.col("number") == number) & which, {column: F.lit(value)})

    return changed


def of_pipeline() -> Column:
    return F.col("pipeline") == "shop"


def swap(table: DeltaTable) -> None:
    other = F.when(F.col("number") == 1, 2).otherwise(1).cast("bigint")
    table.update(of_pipeline() & F.col("number").isin(1, 2), {"number": other})


@pytest.mark.spark
@pytest.mark.parametrize(
    ("tamper", "number"),
    [
        pytest.param(change(1, "reason", "stayed"), 1, marks=pytest.mark.long),
        (change(1, "cut_off", Cutoff().to_json()), 1),
        pytest.param(change(4, "state", "there"), 4, marks=pytest.mark.long),
        (change(2, "hash", "0" * 64), 2),
        pytest.param(change(3, "key_hash", "h9", KEY), 3, marks=pytest.mark.long),
        (lambda table: table.delete(of_pipeline() & (F.col("number") == 2) & (F.col("kind") != KEY)), 2),
        (lambda table: table.delete(of_pipeline() & (F.col("kind") == KEY) & (F.col("key_hash") == "h1")), 3),
        pytest.param(lambda table: table.delete(of_pipeline() & (F.col("number") == 4)), 4, marks=pytest.mark.long),
        pytest.param(lambda table: table.delete(of_pipeline()), 4, marks=pytest.mark.long),
        (swap, 1),
    ],
)
def test_tampering_is_detected(
    spark: SparkSession, tmp_path: Path, tamper: Callable[[DeltaTable], None], number: int
) -> None:
    ledger = written(spark, tmp_path)
    tamper(DeltaTable.forPath(spark, str(tmp_path / "ledger")))
    assert number in {fault.number for fault in ledger.verify()}
