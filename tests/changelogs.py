"""Writes changelogs as Debezium's Postgres connector sends them, one JSON line per record."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Record = dict[str, Any]
TOPIC = "shop.public.orders"


@dataclass
class Topic:
    """A topic partition that numbers its records. `key`: the key columns; empty for a keyless table."""

    name: str = TOPIC
    table: tuple[str, str] = ("public", "orders")
    key: tuple[str, ...] = ("id",)
    partition: int = 0
    next_offset: int = 0
    records: list[Record] = field(default_factory=list)

    def change(
        self,
        op: str,
        lsn: int,
        after: dict[str, Any] | None = None,
        before: dict[str, Any] | None = None,
        **more: Any,
    ) -> Record:
        """Appends a change event. `more` overrides parts of the record (key, offset), or adds the envelope's schema."""
        row = after or before or {}
        source = {"connector": "postgresql", "schema": self.table[0], "table": self.table[1], "lsn": lsn, "ts_ms": 1}
        envelope: dict[str, Any] = {"before": before, "after": after, "source": source, "op": op}
        if "schema" in more:
            envelope = {"schema": more.pop("schema"), "payload": envelope}
        key = more.pop("key", {k: row[k] for k in self.key if k in row} or None)
        return self.record(key, envelope, **more)

    def tombstone(self, key: dict[str, Any]) -> Record:
        return self.record(key, None)

    def record(self, key: Any, value: Any, **more: Any) -> Record:
        offset = more.pop("offset", self.next_offset)
        self.next_offset = max(self.next_offset, offset + 1)
        record = {"topic": self.name, "partition": self.partition, "offset": offset, "key": key, "value": value}
        self.records.append(record | more)
        return record


def schema(*columns: tuple[str, str] | dict[str, Any]) -> dict[str, Any]:
    """Returns an envelope's embedded schema; a column is (name, type) or a whole Connect field."""
    fields = [c if isinstance(c, dict) else {"field": c[0], "type": c[1], "optional": True} for c in columns]
    images = [{"type": "struct", "optional": True, "field": name, "fields": fields} for name in ("before", "after")]
    return {"type": "struct", "fields": images}


def write(folder: Path, records: list[Record], tables: dict[str, Any] | None) -> Path:
    """Writes `events.jsonl`, and `tables.json` unless `tables` is None, into `folder`; returns the folder."""
    folder.mkdir(parents=True)
    text = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records)
    (folder / "events.jsonl").write_text(text, encoding="utf-8")
    if tables is not None:
        (folder / "tables.json").write_text(json.dumps(tables), encoding="utf-8")
    return folder
