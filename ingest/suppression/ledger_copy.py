"""The copy of a ledger outside of the lakehouse: in the archive, or where the pipeline's file says.

    <pipeline>/ledger/<first entry>-<last entry>-<hash of the last entry>.json
    <pipeline>/ledger/keys/<first entry>-<part>-<hash of the part>.json

An object holds consecutive entries and names the parts with their keys, which are written before it. Objects are never
changed. Two processes may write the same entries at once: then ranges overlap."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ingest.archive.store import ObjectMissing
from ingest.errors import LakehouseDamaged
from ingest.names import path_segment
from ingest.suppression.copy_folder import CopyStore
from ingest.suppression.ledger import LedgerEntry
from ingest.suppression.ledger_chain import NO_ENTRY, Head, LedgerFault, chain_faults

_NAME = re.compile(r".*/(\d{20})-(\d{20})-([0-9a-f]{64})\.json")
_KEYS_A_PART = 50_000

KeyRow = tuple[int, str, str, str, int]
"""Number of the entry, request, table, key hash and version of the secret."""


@dataclass(frozen=True)
class CopiedEntries:
    """The entries of a copy in their order, each with the hash that it was stored with. `parts`: objects with keys."""

    entries: Sequence[tuple[LedgerEntry, str]]
    parts: Sequence[str]

    @property
    def head(self) -> Head:
        """Returns the last entry."""
        return Head(self.entries[-1][0].number, self.entries[-1][1]) if self.entries else NO_ENTRY


class LedgerCopy:
    """The copy of one pipeline's ledger."""

    def __init__(self, store: CopyStore, pipeline: str) -> None:
        self._store = store
        self._folder = f"{path_segment(pipeline)}/ledger/"

    @property
    def uri(self) -> str:
        """Returns where it is, for messages."""
        return f"{self._store.uri.rstrip('/')}/{self._folder.rstrip('/')}"

    def heads(self) -> list[Head]:
        """Returns the last entry; several where the copy holds ledgers that differ. Lists names only."""
        found = [Head(last, hash_) for _, last, hash_, _ in self._objects()]
        highest = max((head.number for head in found), default=0)
        return sorted({head for head in found if head.number == highest})

    def write(self, entries: Sequence[LedgerEntry], keys: Iterable[KeyRow]) -> None:
        """Writes consecutive entries and their keys."""
        if not entries:
            return
        first, last = entries[0].number, entries[-1]
        parts = []
        for number, rows in enumerate(_chunks(keys)):
            body = json.dumps(rows, ensure_ascii=False).encode()
            digest = hashlib.sha256(body).hexdigest()
            parts.append(f"keys/{first:020d}-{number:06d}-{digest}.json")
            self._store.put_once(self._folder + parts[-1], body)
        document = {"entries": [entry.to_json() for entry in entries], "keys": parts}
        name = f"{first:020d}-{last.number:020d}-{last.hash}.json"
        self._store.put_once(self._folder + name, json.dumps(document, ensure_ascii=False).encode())

    def read(self) -> CopiedEntries:
        """Returns all entries. Raises LakehouseDamaged where an object is missing or can't be read."""
        found: list[tuple[LedgerEntry, str]] = []
        parts: list[str] = []
        for _, last, _, key in sorted(self._objects(), key=lambda named: (named[0], -named[1])):
            known = found[-1][0].number if found else 0
            if last <= known:
                continue
            document = self._document(key)
            try:
                entries = [_entry(values) for values in document["entries"]]
                # A part may name keys of entries that are known from the object before.
                parts += document["keys"]
            except (KeyError, TypeError, ValueError):
                raise self._damaged(key) from None
            found += [pair for pair in entries if pair[0].number > known]
        return CopiedEntries(found, list(dict.fromkeys(parts)))

    def keys(self, copied: CopiedEntries) -> Iterator[KeyRow]:
        """Yields the keys of these entries, each once for an entry. Raises LakehouseDamaged as `read` does."""
        seen: dict[int, str] = {}
        for part in copied.parts:
            body = self._bytes(self._folder + part)
            if hashlib.sha256(body).hexdigest() != part.rpartition("-")[2].removesuffix(".json"):
                raise self._damaged(self._folder + part)
            run = part.split("/")[1].split("-")[0]
            for row in json.loads(body):
                # Two objects with overlapping ranges have the keys of an entry each.
                if seen.setdefault(row[0], run) == run:
                    yield (row[0], row[1], row[2], row[3], row[4])

    def faults(self, copied: CopiedEntries) -> list[LedgerFault]:
        """Returns what is wrong with the copy: entries or keys that were changed, removed or inserted."""
        texts: dict[int, set[str]] = defaultdict(set)
        for number, _, table, key_hash, version in self.keys(copied):
            texts[number].add(f"{table}:{version}:{key_hash}")
        digests = {
            number: (len(found), hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest())
            for number, found in texts.items()
        }
        return list(chain_faults(copied.entries, digests))

    def _objects(self) -> Iterator[tuple[int, int, str, str]]:
        """Yields first and last entry, the last one's hash and the key of each object with entries."""
        for key in self._store.keys(self._folder):
            name = _NAME.fullmatch(key)
            if name is not None and "/keys/" not in key:
                yield int(name[1]), int(name[2]), name[3], key

    def _document(self, key: str) -> dict[str, Any]:
        try:
            document = json.loads(self._bytes(key))
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise self._damaged(key)
        return document

    def _bytes(self, key: str) -> bytes:
        try:
            return self._store.get(key)
        except ObjectMissing:
            raise self._damaged(key) from None

    def _damaged(self, key: str) -> LakehouseDamaged:
        return LakehouseDamaged(
            f"the copy of the ledger is damaged: {self._store.uri.rstrip('/')}/{key} is missing or altered",
            f"bring it back from a version or a backup. If `ingest ledger verify` finds the ledger itself intact, you "
            f"may remove {self.uri} instead: the next command writes it again",
        )


def _entry(values: dict[str, Any]) -> tuple[LedgerEntry, str]:
    stored = dict(values)
    hash_ = stored.pop("hash")
    return LedgerEntry(**stored | {"at": datetime.fromisoformat(stored["at"])}), hash_


def _chunks(keys: Iterable[KeyRow]) -> Iterator[list[KeyRow]]:
    rows: list[KeyRow] = []
    for row in keys:
        rows.append(row)
        if len(rows) == _KEYS_A_PART:
            yield rows
            rows = []
    if rows:
        yield rows
