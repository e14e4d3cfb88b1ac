"""Rules side by side in one lakehouse, each told from the others by keys or by tables of its own.

A merge of one table costs as much for a handful of rows as for one. So rules that speak of plain rows of `orders`
alone share a table, in which each has a range of ids and a partition; every other rule has a schema of its own.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from tests.changelogs import TOPIC, Record
from tests.merge.rules import UNAVAILABLE, Rows, Rule

_IDS = 1000
_ROWS, _PARTIAL_ROWS = "rows", "partial"
"""Apart, as a batch of whole images is judged in another way than one in which a value is missing."""
_HEARTBEAT = {"topic": "__debezium-heartbeat.turns", "partition": 0, "key": {}, "value": {"ts_ms": 1}}


@dataclass(frozen=True)
class Placed:
    """Rule number `number`, moved to where none of the others is. `shared`: the schema of the table it shares."""

    number: int
    rule: Rule
    shared: str | None

    def _moved(self, said: Any) -> Any:
        return json.loads(json.dumps(said).replace("public", self.shared or f"rule{self.number}"))

    def _with_ids(self, said: Any, by: int) -> Any:
        if isinstance(said, list):
            return [self._with_ids(part, by) for part in said]
        if not isinstance(said, dict):
            return said
        return {k: v + by if k == "id" else self._with_ids(v, by) for k, v in said.items()}

    def records(self) -> list[Record]:
        moved: list[Record] = self._moved(self.rule.records)
        if self.shared:
            return [self._with_ids(r, _IDS * self.number) | {"partition": self.number} for r in moved]
        return moved

    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = self._moved(self.rule.settings or {})
        return settings

    def expected(self) -> dict[str, Rows]:
        tables: dict[str, Rows] = self._moved(self.rule.tables)
        return tables

    def own(self, found: dict[str, Rows]) -> dict[str, Rows]:
        """Of the lakehouse's tables those of this rule, as its text has them."""
        if self.shared is None:
            return {t: rows for t, rows in found.items() if t in self.expected()}
        (table,) = self.expected()
        columns = {c for r in self.rule.records if r["value"] for c in (r["value"].get("after") or {})}
        ids = range(_IDS * self.number, _IDS * (self.number + 1))
        rows = [self._with_ids(row, -_IDS * self.number) for row in found[table] if row["id"] in ids]
        return {table: [{c: v for c, v in row.items() if c in columns or v is not None} for row in rows]}


@dataclass(frozen=True)
class Neighbours:
    """The rules that one lakehouse takes, as they take turns: a record of each, and heartbeats of who has none left."""

    rules: tuple[Placed, ...]

    def turns(self) -> Iterator[tuple[Record, Placed | None, int]]:
        """Record, whose it is, and which of its rule's it is."""
        heartbeats = 0
        for at, turn in enumerate(zip_longest(*(one.records() for one in self.rules))):
            for one, record in zip(self.rules, turn, strict=True):
                yield (record, one, at) if record else (_HEARTBEAT | {"offset": heartbeats}, None, at)
                heartbeats += not record

    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"tables": {}}
        for one in self.rules:
            tables = settings["tables"] | one.settings().get("tables", {})
            settings |= one.settings() | {"tables": tables}
        return settings


def _shared(rule: Rule) -> str | None:
    """Whether it speaks of rows of one table alone, known by numbers."""

    def speaks_of_a_row(record: Record) -> bool:
        key, value = record["key"], record["value"] or {}
        plain = record["topic"] == TOPIC and set(value) <= {"before", "after", "source", "op"}
        rows = [key, *(image for image in (value.get("before"), value.get("after")) if image)]
        numbered = all(isinstance(row, dict) and isinstance(row.get("id"), int) for row in rows)
        return plain and numbered and value.get("op", "d") in "cudr" and "snapshot" not in value.get("source", {})

    if rule.settings or rule.quarantined or not all(map(speaks_of_a_row, rule.records)):
        return None
    return _PARTIAL_ROWS if UNAVAILABLE in json.dumps(rule.records) else _ROWS


def neighbours(rules: Sequence[Rule]) -> list[Neighbours]:
    """All rules, those together that are told the same of the whole lakehouse."""
    together: dict[str, list[Placed]] = defaultdict(list)
    for number, rule in enumerate(rules):
        one = Placed(number, rule, _shared(rule))
        of_all = {what: said for what, said in one.settings().items() if what != "tables"}
        together[json.dumps(of_all, sort_keys=True)].append(one)
    return [Neighbours(tuple(placed)) for placed in together.values()]
