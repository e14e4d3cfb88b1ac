"""The chain of a ledger's entries, and its copy as objects, without a session."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ingest.errors import ConfigError, LakehouseDamaged, StorageRefused
from ingest.suppression.copy_folder import CopyFolder
from ingest.suppression.ledger import REQUESTED, LedgerEntry
from ingest.suppression.ledger_anchor import LedgerAnchor
from ingest.suppression.ledger_chain import NO_ENTRY, Head, missing_from
from ingest.suppression.ledger_copy import KeyRow, LedgerCopy

HASHES = {1: "a", 2: "b"}


def chain(*requests: str, after: Sequence[LedgerEntry] = ()) -> list[LedgerEntry]:
    """Returns entries of requests with one key each, which follow `after`."""
    found = list(after)
    for request in requests:
        previous = found[-1].hash if found else NO_ENTRY.hash
        digest = hashlib.sha256(f"members:1:h{request}".encode()).hexdigest()
        entry = LedgerEntry(REQUESTED, request, number=len(found) + 1, previous=previous, keys=1, keys_digest=digest)
        found.append(replace(entry, pipeline="shop", cut_off="{}"))
    return found[len(after) :]


def keys(entries: Sequence[LedgerEntry]) -> list[KeyRow]:
    return [(e.number, e.request, "members", f"h{e.request}", 1) for e in entries]


def copy_of(folder: Path) -> LedgerCopy:
    return LedgerCopy(CopyFolder(str(folder)), "shop")


@pytest.mark.parametrize(
    ("known", "numbers"),
    [
        ([NO_ENTRY], []),
        ([Head(1, "a"), Head(2, "b")], []),
        ([Head(3, "c")], [3]),
        ([Head(2, "x")], [2]),
        ([Head(1, "a"), Head(2, "b"), Head(2, "x")], [2]),
    ],
)
def test_ledger_that_lacks_a_known_entry_is_faulty(known: list[Head], numbers: list[int]) -> None:
    assert [fault.number for fault in missing_from(HASHES, known, "elsewhere")] == numbers


def test_ledger_that_is_gone_lacks_every_known_entry() -> None:
    (fault,) = missing_from({}, [Head(1, "a")], "elsewhere")
    assert "gone" in fault.problem


def test_copy_holds_what_was_written(tmp_path: Path) -> None:
    copy, entries = copy_of(tmp_path), chain("a", "b", "c")
    assert copy.heads() == []
    copy.write(entries[:2], keys(entries[:2]))
    # Two processes write at once: their ranges overlap.
    copy.write(entries[1:], keys(entries[1:]))
    copy.write(entries[:2], keys(entries[:2]))
    copied = copy_of(tmp_path).read()
    assert [entry for entry, _ in copied.entries] == entries
    assert copied.head == Head(3, entries[2].hash)
    assert copy.heads() == [copied.head]
    assert list(copy.keys(copied)) == keys(entries)
    assert copy.faults(copied) == []


def test_copy_of_ledgers_that_differ_has_two_heads(tmp_path: Path) -> None:
    copy, entries = copy_of(tmp_path), chain("a", "b")
    copy.write(entries, keys(entries))
    others = chain("c", after=entries[:1])
    copy.write(others, keys(others))
    assert len(copy.heads()) == 2
    assert [fault.number for head in copy.heads() for fault in missing_from({1: "", 2: entries[1].hash}, [head], "")]


@pytest.mark.parametrize("changed", ["entries", "keys", "lost keys", "lost entry"])
def test_damage_of_a_copy_is_found(tmp_path: Path, changed: str) -> None:
    copy, entries = copy_of(tmp_path), chain("a", "b", "c")
    for entry in entries:
        copy.write([entry], keys([entry]))
    files = sorted(tmp_path.rglob("*.json"))
    objects, parts = [f for f in files if "keys" not in f.parts], [f for f in files if "keys" in f.parts]
    match changed:
        case "entries":
            objects[1].write_bytes(objects[1].read_bytes().replace(b'"cut_off": "{}"', b'"cut_off": "{ }"'))
        case "keys":
            parts[1].write_bytes(parts[1].read_bytes().replace(b"hb", b"hx"))
        case "lost keys":
            parts[1].unlink()
        case _:
            objects[1].unlink()
    try:
        faults = copy.faults(copy.read())
    except (LakehouseDamaged, StorageRefused):
        assert changed in ("keys", "lost keys")
    else:
        assert faults


def test_folder_keeps_what_was_written_first(tmp_path: Path) -> None:
    folder = CopyFolder(str(tmp_path / "copies"))
    assert folder.put_once("a/b.json", b"1")
    assert not folder.put_once("a/b.json", b"2")
    assert folder.get("a/b.json") == b"1"
    assert list(folder.keys("a/")) == ["a/b.json"]
    assert list(folder.keys("b")) == []
    assert (tmp_path / "copies").stat().st_mode & 0o077 == 0


def test_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageRefused, match="ledger_copy"):
        CopyFolder(str(tmp_path / "file")).put_once("a.json", b"")


def test_anchor_is_read_as_written(tmp_path: Path) -> None:
    anchor = LedgerAnchor(str(tmp_path / "anchors" / "shop.head"))
    assert anchor.head() == NO_ENTRY
    assert anchor.store(Head(3, "c"))
    assert anchor.head() == Head(3, "c")
    assert [file.name for file in (tmp_path / "anchors").iterdir()] == ["shop.head"]


def test_anchor_that_is_damaged_is_named(tmp_path: Path) -> None:
    (tmp_path / "shop.head").write_text("{}", encoding="ascii")
    with pytest.raises(ConfigError, match=r"shop\.head"):
        LedgerAnchor(str(tmp_path / "shop.head")).head()
    assert not LedgerAnchor(str(tmp_path / "shop.head" / "x")).store(Head(1, "a"))
