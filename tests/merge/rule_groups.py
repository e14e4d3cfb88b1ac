"""Several rules in one lakehouse, separated by keys or tables. A merge of a table costs as much for one row as for a
few. So rules about plain rows of `orders` share a table, in which each has a range of ids and a partition; every other
rule has its own schema."""

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
"""Separate, because batches of whole images and batches with unavailable values are merged by different code."""
_HEARTBEAT = {"topic": "__debezium-heartbeat.turns", "partition": 0, "key": {}, "value": {"ts_ms": 1}}


@dataclass(frozen=True)
class Placed:
    """A rule with its own names and ids. `number`: the rule's number. `shared`: the schema of the shared table; None if
    the rule has its own."""

    number: int
    rule: Rule
    shared: str | None

    def _moved(self, value: Any) -> Any:
        return json.loads(json.dumps(value).replace("public", self.shared or f"rule{self.number}"))

    def _with_ids(self, value: Any, by: int) -> Any:
        if isinstance(value, list):
            return [self._with_ids(part, by) for part in value]
        if not isinstance(value, dict):
            return value
        return {k: v + by if k == "id" else self._with_ids(v, by) for k, v in value.items()}

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

    def rows_of_rule(self, tables_found: dict[str, Rows]) -> dict[str, Rows]:
        """Returns the rule's tables among those of the lakehouse, with the names and ids of the rule's text."""
        if self.shared is None:
            return {t: rows for t, rows in tables_found.items() if t in self.expected()}
        (table,) = self.expected()
        columns = {c for r in self.rule.records if r["value"] for c in (r["value"].get("after") or {})}
        ids = range(_IDS * self.number, _IDS * (self.number + 1))
        rows = [self._with_ids(row, -_IDS * self.number) for row in tables_found[table] if row["id"] in ids]
        return {table: [{c: v for c, v in row.items() if c in columns or v is not None} for row in rows]}


@dataclass(frozen=True)
class RuleGroup:
    """Rules that share one lakehouse. Their records alternate; heartbeats replace the records of rules that have none
    left."""

    rules: tuple[Placed, ...]

    def turns(self) -> Iterator[tuple[Record, Placed | None, int]]:
        """Yields a record, its rule, and its number within the rule."""
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
    """Returns True if the rule is about rows of one table with numeric ids."""

    def names_a_row(record: Record) -> bool:
        key, value = record["key"], record["value"] or {}
        plain = record["topic"] == TOPIC and set(value) <= {"before", "after", "source", "op"}
        rows = [key, *(image for image in (value.get("before"), value.get("after")) if image)]
        numbered = all(isinstance(row, dict) and isinstance(row.get("id"), int) for row in rows)
        return plain and numbered and value.get("op", "d") in "cudr" and "snapshot" not in value.get("source", {})

    if rule.settings or rule.quarantined or not all(map(names_a_row, rule.records)):
        return None
    return _PARTIAL_ROWS if UNAVAILABLE in json.dumps(rule.records) else _ROWS


def rule_groups(rules: Sequence[Rule]) -> list[RuleGroup]:
    """Returns groups of rules with equal settings of the whole lakehouse."""
    together: dict[str, list[Placed]] = defaultdict(list)
    for number, rule in enumerate(rules):
        one = Placed(number, rule, _shared(rule))
        of_all = {what: value for what, value in one.settings().items() if what != "tables"}
        together[json.dumps(of_all, sort_keys=True)].append(one)
    return [RuleGroup(tuple(placed)) for placed in together.values()]
