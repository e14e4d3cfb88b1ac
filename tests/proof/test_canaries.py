"""The scanner finds every canary, and the canaries detect a scanner that misses a format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from ingest.proof.canaries import check_canaries
from ingest.proof.canaries.canary_encodings import canaries, number_canary
from ingest.proof.canaries.formats import canary_files
from ingest.proof.forms import anchors, encodings
from ingest.proof.forms.base64_blocks import CONTAINER_FORMS
from ingest.proof.forms.encodings import ENCODINGS
from ingest.proof.forms.typed_forms import TYPED_FORMS
from ingest.proof.scan import compressed, parquet, patterns, reading, search
from ingest.proof.scan.kinds import kind_of


def missed() -> set[str]:
    return {s.format for s in check_canaries([]) if s.missed}


def test_every_canary_is_found() -> None:
    seen = check_canaries([])
    assert {s.format: s.missed for s in seen if s.missed} == {}
    assert sum(s.canaries for s in seen) > 1000


def test_canaries_cover_every_encoding_and_format() -> None:
    birds = canaries()
    assert {c.encoding for c in birds} == {*ENCODINGS, *CONTAINER_FORMS, *TYPED_FORMS}
    kinds = {kind_of(p.file.rsplit("/", 1)[-1], p.body[:4096]) for p in canary_files(birds, number_canary())}
    assert kinds >= compressed.COMPRESSED | {"parquet", "kafka segment", "zip", "deletion vector"}
    first, second = canaries()[0], canaries()[0]
    assert first.term.value != second.term.value
    assert first.term.value not in repr(first)


def nothing(*_: object, **__: object) -> Iterator[Any]:
    return iter(())


BLIND: list[tuple[object, str, Any, str]] = [
    (parquet, "_columns", nothing, "Parquet, nested"),
    (parquet, "_dictionaries", nothing, "Parquet, snappy"),
    (parquet, "_footer", nothing, "Parquet, zstd"),
    (reading, "compressed_batches", nothing, "Kafka, lz4"),
    (reading, "decompressed", nothing, "gzip"),
    (compressed, "_snappy_frames", nothing, "snappy frames"),
    (compressed, "_block", lambda *_: b"", "lz4 blocks"),
    (reading.EntryScan, "_members", nothing, "zip"),
    (anchors, "_in_base64", nothing, "text"),
    (search, "broken_blocks", nothing, "text"),
    (search, "container", lambda *_: None, "text"),
    (encodings, "_url_encoded", nothing, "text"),
    (encodings, "_json_escapes", nothing, "text"),
    (patterns, "after_column", lambda _: re.compile(rb"(?!)"), "text"),
    (search, "_bytes_behind", lambda *_: -(10**6), "text across borders"),
]


@pytest.mark.parametrize(("module", "name", "instead", "shows"), BLIND, ids=[b[1] for b in BLIND])
def test_scanner_without_a_decoder_is_caught(
    module: object, name: str, instead: Any, shows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, instead)
    assert shows in missed()
