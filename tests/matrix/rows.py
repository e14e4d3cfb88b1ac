"""The rows that silver has after each change of `matrix`, where they are not those of the source."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ingest.evolution.schema_policy import OnChange, SchemaPolicy

Rows = list[dict[str, Any]]
_NULL = {1: {"w": None}}
UNLIKE: dict[tuple[str, str], dict[int, dict[str, Any]]] = {
    **{("told", name): {1: {column: None}} for name, column in (("volatile", "w"), ("text_to_date", "v"))},
    ("told", "computed"): {1: {"v": None}},
    ("seen", "volatile"): {1: {"w": 0}},  # Debezium shows 0 in place of a function
    ("seen", "computed"): {1: {"v": 15}},
    ("plain", "computed"): {1: {"v": 15}},
    **{("seen", name): _NULL for name in ("array", "domain", "renamed")},
    **{
        ("plain", name): _NULL
        for name in ("constant", "constant_not_null", "volatile", "array", "moment", "domain", "enum", "renamed")
    },
    ("plain", "back"): {1: {"w": 7}},
    ("plain", "back_as_text"): {1: {"w": "7"}},
}
"""Form and table → ID → values of silver that are not those of the source, under `evolve`."""
_LEFT: Rows = [{"no": None, "v": 1}, {"no": None, "v": 2}, {"no": 2, "v": 22}, {"no": 3, "v": 3}]
_BOTH: Rows = [{"id": 1, "w": None}, {"id": 2, "w": None}, {"id": 3, "w": "three"}]
BESIDE: dict[tuple[str, str], Rows] = {
    ("seen", "renamed_key"): _LEFT,
    ("plain", "renamed_key"): _LEFT,
    ("seen", "anew"): _BOTH,
    ("plain", "anew"): _BOTH,
    ("plain", "key_column"): [
        *({"id": n, "v": n, "k": None} for n in (1, 2)),
        *({"id": n, "v": v, "k": k} for n, v, k in ((1, 4, 2), (2, 22, 1), (3, 3, 3))),
    ],
}
"""Form and table → the rows of silver where rows from before a change stay beside those of the source."""
UNCERTAIN = {
    "its rows from before are not found by the images since": {
        ("seen", "keyless_renamed"),
        *(("plain", f"keyless_{change}") for change in ("added", "dropped", "renamed")),
    },
    "its type has to be declared": {("plain", name) for name in ("exact", "text_to_date", "date_to_moment")},
    "a shorter key may leave out a null": {("plain", "shorter_key")},
}
"""Reason → form and table whose rows aren't compared."""
STAY = ("gone", "former")
"""Tables that keep the rows from before under `evolve`."""
_UNTOUCHED = 1
"""The ID of the row that is not written after the change."""


def expected_rows(
    place: tuple[str, str], before: Rows, after: Rows | None, policy: SchemaPolicy, not_applied: Collection[str]
) -> Rows:
    """Returns the rows of silver. `place`: form and table. `before`, `after`: the rows at the source.
    `not_applied`: kinds of the changes that are kept beside or ignored."""
    if place[1] in STAY or after is None:
        return before
    found = BESIDE.get(place) or [row | UNLIKE.get(place, {}).get(row.get("id", 0), {}) for row in after]
    if "truncate.table" in not_applied or "drop.table" in not_applied:
        found = [*before, *after]
    old = {name for row in before for name in row}
    new = {name for row in found for name in row} - old
    is_split = "rename.column" in not_applied
    if "add.column" in not_applied or (is_split and policy.mode("add.column") is OnChange.IGNORE):
        found = [{name: value for name, value in row.items() if name not in new} for row in found]
    elif is_split:
        found = [row | dict.fromkeys(new if row["id"] == _UNTOUCHED else (), None) for row in found]
    if "drop.column" in not_applied or is_split or "drop.table" in not_applied:
        values = {row["id"]: row for row in before}[_UNTOUCHED]
        gone = old - {name for row in after for name in row}
        found = [{name: values[name] if row["id"] == _UNTOUCHED else None for name in gone} | row for row in found]
        back = {"w": str(values["w"]) if place[1] == "back_as_text" else values["w"]} if "w" in old - gone else {}
        found = [row | back if row["id"] == _UNTOUCHED else row for row in found]
    columns = {name: None for row in found for name in row}
    return [columns | row for row in found]
