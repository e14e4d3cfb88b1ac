"""Shredded columns are readable with the master key only; once a subject's key is destroyed, no copy is readable."""

from __future__ import annotations

import base64
import json
import re
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ingest.cli import app
from ingest.cli.lakehouse.sql import register_decrypted_views
from ingest.config import Pipeline
from ingest.erasure import request
from ingest.erasure.places import DATA_KEYS
from ingest.erasure.removal import Removal
from ingest.erasure.request import SubjectId
from ingest.errors import ConfigError
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.quarantine import Quarantine
from ingest.pipeline.shredding import data_keys_of, decrypted_rows, shred
from ingest.proof.scan import SearchTerm
from ingest.shredding.key_store import KeyStore
from ingest.suppression.cutoff import Cutoff
from ingest.suppression.keyed_hash import keyed_hash
from ingest.suppression.ledger import Ledger
from ingest.testing import fold
from tests.changelogs import Record, Topic, schema
from tests.erasure import people
from tests.erasure.people import CLAIMS, COLUMNS, MEMBERS, PHOTOS, SETTINGS, TABLES, insured
from tests.erasure.test_removal import ANNA, BEN, NAME, STORY, TEXT, table_event
from tests.proof.subject import scan
from tests.suppression.test_suppression import captured, merged, rows

pytestmark = pytest.mark.spark
MASTER = bytes(range(32))
VALUES = (SearchTerm("name", NAME), SearchTerm("text", TEXT))
SHRED: dict[str, Any] = {
    MEMBERS: SETTINGS[MEMBERS] | {"shred": ["name"]},
    CLAIMS: SETTINGS[CLAIMS] | {"shred": ["text"]},
    PHOTOS: SETTINGS[PHOTOS] | {"personal": ["text"], "shred": ["text"]},
}


def shredding(folder: Path, **more: Any) -> Pipeline:
    folder.mkdir(parents=True, exist_ok=True)
    master = folder / "master.key"
    master.write_text("1 " + MASTER.hex(), encoding="ascii")
    master.chmod(0o600)
    shredding_settings = {"key_store": f"sqlite:///{folder}/keys.db", "master_key_file": str(master)}
    privacy = {"key_file": str(folder / "ledger.key"), "shredding": shredding_settings, "keep_old_files_hours": 0}
    return insured(folder, **{"privacy": privacy, "tables": SHRED} | more)


def capture_and_merge(
    spark: SparkSession, pipeline: Pipeline, folder: Path, records: list[Record], batch: int = 20
) -> None:
    merged(spark, pipeline, captured(spark, pipeline, folder, records, None, batch), batch)


def decrypted(spark: SparkSession, pipeline: Pipeline, table: str) -> dict[int, dict[str, Any]]:
    found = decrypted_rows(spark, pipeline, table).collect()
    return {r.id: {c: r.asDict().get(c) for c in COLUMNS[table]} for r in found}


def ask(spark: SparkSession, pipeline: Pipeline, member: int, cutoff: Cutoff) -> str:
    asked = request.plan_erasure(spark, pipeline, [SubjectId("member", str(member))], None, cutoff)
    return request.request_erasure(spark, pipeline, asked)[0].request


@pytest.mark.long
@pytest.mark.parametrize("seed", [3])
def test_decrypted_tables_equal_the_oracle(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Rows move, change their subject, arrive late and twice. Other batches give the same sealed texts."""
    random = Random(seed)
    lives = {case: people.random_history(random, case, 14, settled=False) for case in range(1, 9)}
    records = [record for case, life in lives.items() for record in people.records(life, case)]
    one, other = shredding(tmp_path), shredding(tmp_path, lakehouse=str(tmp_path / "other"))
    capture_and_merge(spark, one, tmp_path / "one", records, len(records))
    capture_and_merge(spark, other, tmp_path / "two", records, len(records) // 5)
    for table in TABLES:
        expected: dict[Any, Any] = {}
        for life in lives.values():
            expected |= fold([s.event for s in life if s.table == table], COLUMNS[table])
        assert decrypted(spark, one, table) == expected, (seed, table)
        sealed = rows(spark, one, table)
        assert sealed == rows(spark, other, table)
        (column,) = SHRED[table]["shred"]
        texts = [row[column] for row in sealed.values()]
        assert texts
        assert all(text.startswith("sealed:1:") for text in texts)


@pytest.mark.long
def test_copies_hold_no_readable_value_of_an_erased_subject(spark: SparkSession, tmp_path: Path) -> None:
    """Checks a copy of the lakehouse from before the erasure; values of others and of a new life are readable."""
    pipeline = shredding(tmp_path)
    capture_and_merge(spark, pipeline, tmp_path / "events", people.records(STORY[:-2], 1))
    assert scan(Path(pipeline.lakehouse), VALUES).findings == {}
    assert decrypted(spark, pipeline, MEMBERS) == {ANNA: {"name": NAME}, BEN: {"name": "Ben"}}
    copy = tmp_path / "copy"
    shutil.copytree(pipeline.lakehouse, copy)
    ask(spark, pipeline, ANNA, people.cutoff(1, STORY[:-2]))
    backup = pipeline.model_copy(update={"lakehouse": str(copy)})
    for lakehouse in (pipeline, backup):
        assert decrypted(spark, lakehouse, MEMBERS) == {ANNA: {"name": None}, BEN: {"name": "Ben"}}
        assert decrypted(spark, lakehouse, CLAIMS)[99150] == {"member_id": ANNA, "text": None}
        # Linked over two tables, sealed under the key of the claim.
        assert decrypted(spark, lakehouse, PHOTOS) == {
            70: {"claim_id": 99150, "text": None},
            71: {"claim_id": 61, "text": "a door"},
        }
    new = [*STORY[:-2], table_event(MEMBERS, "c", 3, 90, ANNA, name="Anna again")]
    capture_and_merge(spark, pipeline, tmp_path / "new", people.records(new, 1))
    Removal(spark, pipeline).run()
    assert decrypted(spark, pipeline, MEMBERS) == {ANNA: {"name": "Anna again"}, BEN: {"name": "Ben"}}
    assert decrypted(spark, pipeline, CLAIMS).keys() == {61}
    assert decrypted(spark, backup, MEMBERS)[ANNA] == {"name": None}


@pytest.mark.long
def test_erasure_that_died_destroys_its_keys_when_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = shredding(tmp_path)
    capture_and_merge(spark, pipeline, tmp_path / "events", people.records(STORY, 1))
    with monkeypatch.context() as dying:
        dying.setattr(request, "shred", lambda *_: None)
        ask(spark, pipeline, ANNA, people.cutoff(1, STORY))
    assert decrypted(spark, pipeline, MEMBERS)[ANNA] == {"name": NAME}
    taken = Removal(spark, pipeline).run().taken
    assert taken[DATA_KEYS] == {"keys": 2}, "hers and her claim's"
    assert shred(spark, pipeline) == 0
    states = [e.place for e in Ledger(spark, pipeline.layout.ledger, pipeline.name).entries() if e.place]
    assert states[0] == DATA_KEYS


@pytest.mark.long
def test_decrypted_values_keep_their_types(spark: SparkSession, tmp_path: Path) -> None:
    """Compares the decrypted table with the same table without `shred`."""
    columns = [
        ("id", "int64"),
        {"field": "born", "type": "int32", "name": "io.debezium.time.Date", "optional": True},
        {"field": "seen", "type": "int64", "name": "io.debezium.time.MicroTimestamp", "optional": True},
        {
            "field": "paid",
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2", "connect.decimal.precision": "10"},
            "optional": True,
        },
        ("name", "string"),
        ("photo", "bytes"),
        ("fit", "boolean"),
        {"field": "words", "type": "array", "items": {"type": "string", "optional": True}, "optional": True},
    ]
    personal = ["born", "seen", "paid", "name", "photo", "fit", "words"]
    full: dict[str, Any] = {
        "id": 1, "born": -3000, "seen": 1_700_000_000_123_456, "paid": base64.b64encode(b"\x04\xd2").decode(),
        "name": "Ä \"quoted\" \\ \u2028 😀", "photo": base64.b64encode(bytes(range(256))).decode(), "fit": True,
        "words": ["a", None, "ü"],
    }  # fmt: skip
    missing = "__debezium_unavailable_value"
    toasted = full | {
        "id": 2,
        "name": missing,
        "photo": base64.b64encode(missing.encode()).decode(),
        "words": [missing],
    }
    topic = Topic("insured.members", ("public", "members"))
    value_schema = schema(*columns)  # type: ignore[arg-type]
    topic.change("c", 10, full, schema=value_schema)
    topic.change("c", 11, full | {"id": 2}, schema=value_schema)
    topic.change("u", 12, toasted | {"fit": False}, schema=value_schema)
    topic.change("c", 13, dict.fromkeys(full) | {"id": 3}, schema=value_schema)
    topic.change("c", 14, full | {"id": 4, "name": "x" * 100_000}, schema=value_schema)
    settings = SETTINGS[MEMBERS] | {"personal": personal}
    plain = insured(tmp_path / "plain", tables={MEMBERS: settings})
    sealed = shredding(tmp_path / "sealed", tables={MEMBERS: settings | {"shred": personal}})
    capture_and_merge(spark, plain, tmp_path / "a", topic.records, 2)
    capture_and_merge(spark, sealed, tmp_path / "b", topic.records, 2)
    whole = spark.read.format("delta").load(plain.layout.silver(plain.name, MEMBERS))
    expected = whole.select("id", *personal)
    found = decrypted_rows(spark, sealed, MEMBERS)
    assert found.dtypes == expected.dtypes
    assert sorted(found.collect()) == sorted(expected.collect(), key=lambda r: r.id)


def test_sealed_text_has_the_documented_format(spark: SparkSession, tmp_path: Path) -> None:
    """Decrypts a sealed text without the project's code: AES-256-GCM, under the owner's key, bound to table and
    column."""
    pipeline = shredding(tmp_path)
    capture_and_merge(spark, pipeline, tmp_path / "events", people.records(STORY, 1))
    text = rows(spark, pipeline, MEMBERS)[ANNA]["name"]
    found = re.fullmatch(r"sealed:1:([0-9a-f]{32}):(.+)", text)
    assert found is not None
    keys = data_keys_of(pipeline)
    assert keys is not None
    owner = keyed_hash(bytes.fromhex(people.SECRET.split()[1]), MEMBERS, str(ANNA))
    (mine,) = KeyStore(keys.url, pipeline.name, {1: MASTER}).ensure([owner])
    assert mine.key_id == found[1]
    key = AESGCM(MASTER).decrypt(mine.wrapped[:12], mine.wrapped[12:], mine.key_id.encode())
    box = base64.b64decode(found[2])
    place = f"{MEMBERS}\0name\0{mine.key_id}".encode()
    assert json.loads(AESGCM(key[:32]).decrypt(box[:12], box[12:], place)) == NAME
    assert text not in json.dumps(rows(spark, pipeline, CLAIMS))


@pytest.mark.usefixtures("whole_plans")
def test_plans_show_no_key(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = shredding(tmp_path)
    capture_and_merge(spark, pipeline, tmp_path / "events", people.records(STORY, 1))
    plan_text = decrypted_rows(spark, pipeline, MEMBERS)._jdf.queryExecution().toString()
    assert "aes_decrypt" in plan_text
    for secret in (MASTER, bytes.fromhex(people.SECRET.split()[1])):
        for form in (secret.hex(), base64.b64encode(secret).decode(), str(list(secret))[1:-1]):
            assert form not in plan_text.lower()
    assert "keys.db" not in plan_text


def test_unparseable_value_is_sealed_as_a_whole(spark: SparkSession, tmp_path: Path) -> None:
    """The value repeats a field, or is truncated; it is unreadable in quarantine too."""
    pipeline = shredding(tmp_path)
    topic = Topic("insured.members", ("public", "members"))
    topic.change("c", 10, {"id": BEN, "name": "Ben"})
    source = '{"connector":"postgresql","schema":"public","table":"members","lsn":11}'
    twice = f'{{"before":null,"after":{{"id":{ANNA},"name":"Ä","name":"{NAME}"}},"source":{source},"op":"c"}}'
    unknown = f'{{"before":null,"after":{{"id":{ANNA},"name":"{NAME}"}},"source":{source},"op":"z"}}'
    for value in (twice, twice[:-20], unknown):
        topic.record({"id": ANNA}, None, value_bytes=value)
    capture_and_merge(spark, pipeline, tmp_path / "events", topic.records)
    held = Quarantine(spark, pipeline.layout.quarantine, pipeline.name).rows().orderBy("offset").collect()
    assert [row["offset"] for row in held] == [1, 2, 3]
    assert all(re.fullmatch(rb'\{"sealed":"sealed:1:[^"]+"\}', row["value"]) for row in held[:2])
    assert json.loads(held[2]["value"])["after"]["name"].startswith("sealed:1:")
    assert decrypted(spark, pipeline, MEMBERS) == {BEN: {"name": "Ben"}}
    assert scan(Path(pipeline.lakehouse), VALUES).findings == {}


def test_owner_of_an_unsupported_type_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = shredding(tmp_path)
    topic = Topic("insured.members", ("public", "members"))
    day = {"field": "id", "type": "int32", "name": "io.debezium.time.Date", "optional": False}
    topic.change("c", 10, {"id": 5, "name": "x"}, schema=schema(day, ("name", "string")))
    capture_and_merge(spark, pipeline, tmp_path / "events", topic.records)
    (aside,) = Accounts(spark, pipeline.layout.accounts, pipeline.name).set_aside().values()
    assert "leads to its subject by id, a date" in aside.reason


@pytest.mark.long
def test_masks_are_not_encrypted(spark: SparkSession, tmp_path: Path) -> None:
    """The key is destroyed and the row stays: masks are stored unencrypted."""
    masks = {"name": {"constant": "—"}}
    pipeline = shredding(tmp_path, tables={MEMBERS: SHRED[MEMBERS] | {"on_erasure": masks}})
    capture_and_merge(spark, pipeline, tmp_path / "events", people.records(STORY[:3], 1))
    ask(spark, pipeline, ANNA, people.cutoff(1, STORY[:3]))
    Removal(spark, pipeline).run()
    assert decrypted(spark, pipeline, MEMBERS) == {ANNA: {"name": "—"}, BEN: {"name": "Ben"}}


@pytest.mark.long
def test_decrypting_needs_both_key_files(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = shredding(tmp_path)
    capture_and_merge(spark, pipeline, tmp_path / "events", people.records(STORY, 1))
    register_decrypted_views(spark, pipeline)
    assert spark.sql(f"SELECT name FROM members__decrypted WHERE id = {ANNA}").first() == (NAME,)
    other = tmp_path / "other.key"
    other.write_text("1 " + "00" * 32, encoding="ascii")
    other.chmod(0o600)
    shredding_settings = pipeline.privacy.shredding.model_copy(update={"master_key_file": str(other)})  # type: ignore[union-attr]
    privacy = pipeline.privacy.model_copy(update={"shredding": shredding_settings})  # type: ignore[union-attr]
    register_decrypted_views(spark, pipeline.model_copy(update={"privacy": privacy}))
    assert spark.sql("SELECT max(name), count(*) FROM members__decrypted").first() == (None, 2)
    with pytest.raises(ConfigError, match="no table"):
        register_decrypted_views(spark, insured(tmp_path / "plain"))


def test_rewrap_uses_the_newest_master_key(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = shredding(tmp_path)
    capture_and_merge(spark, pipeline, tmp_path / "events", people.records(STORY, 1))
    master = tmp_path / "master.key"
    master.write_text(f"1 {MASTER.hex()}\n2 {bytes(reversed(MASTER)).hex()}\n", encoding="ascii")
    result = CliRunner().invoke(app, ["rewrap", str(tmp_path / "insured.yaml"), "--json"])
    assert json.loads(result.output) == {"rewrapped": 4, "master": 2}, "two members and two claims with photos"
    master.write_text(f"2 {bytes(reversed(MASTER)).hex()}\n", encoding="ascii")
    assert decrypted(spark, pipeline, MEMBERS)[ANNA] == {"name": NAME}
