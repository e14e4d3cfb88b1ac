"""The rows that silver has after each change of `matrix`, where they are not those of the source."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ingest.evolution.schema_policy import Outcome, SchemaPolicy

Rows = list[dict[str, Any]]
_NULL = {1: {"w": None}}
UNLIKE: dict[tuple[str, str], dict[int, dict[str, Any]]] = {
    ("told", "volatile"): {1: {"w": None}},
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
"""Tables without events after the change, which keep the rows from before."""
UNTOUCHED = {"renamed_key": (1, 2), "anew": (1, 2)}
"""Table → IDs of its rows that are not written after the change, if not 1 alone."""


def expected_rows(
    place: tuple[str, str], before: Rows, after: Rows | None, policy: SchemaPolicy, outcomes: Mapping[str, str]
) -> Rows:
    """Returns the rows of silver. `place`: form and table. `before`, `after`: the rows at the source. `outcomes`: kind
    of change → outcome, as the documentation has it."""
    form, table = place
    if table in STAY or after is None:
        return before
    before, after = ([lowered(row) for row in rows] for rows in (before, after))
    not_applied = {kind for kind, outcome in outcomes.items() if outcome != Outcome.APPLIED}
    found = BESIDE.get(place) or [row | UNLIKE.get(place, {}).get(row.get("id", 0), {}) for row in after]
    if not_applied & {"truncate.table", "drop.table"}:
        found = [*before, *found]
    old, new = names_of(before), names_of(after)
    if "alter.column.type" in not_applied:
        found = [with_values(row, old & new, before, UNTOUCHED.get(table, (1,))) for row in found]
    added, gone = new - old, old - new
    if policy.ignores_new_columns and outcomes.get("rename.column") != Outcome.APPLIED:
        found = [{name: value for name, value in row.items() if name not in added} for row in found]
    elif "rename.column" in not_applied:
        found = [row | {name: None for name in added if row["id"] == 1} for row in found]
    if "w" in old & new and policy.keeps_dropped:  # `back`, `back_as_text`
        kept = {"w": str(before[0]["w"]) if table == "back_as_text" else before[0]["w"]}
        found = [row | kept if row["id"] == 1 else row for row in found]
    is_kept = policy.keeps_dropped and not_applied & {"drop.column", "rename.column", "drop.table"}
    if is_kept or form == "plain":
        found = [dict.fromkeys(gone) | with_values(row, gone, before, UNTOUCHED.get(table, (1,))) for row in found]
    else:
        found = [{name: value for name, value in row.items() if name not in gone} for row in found]
    columns = dict.fromkeys(name for row in found for name in row)
    return [columns | row for row in found]


def names_of(rows: Rows) -> set[str]:
    return {name for row in rows for name in row}


def lowered(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row by names in lower case, because a table goes by the case that its columns had first."""
    return {name.lower(): value for name, value in row.items()}


def with_values(row: dict[str, Any], names: Collection[str], before: Rows, ids: Collection[int]) -> dict[str, Any]:
    """Returns a row with its values from before in some columns, if it has one of some IDs. Rows whose key is another
    column are found by `v`."""
    by = "id" if "id" in row else "v"
    held = [one for one in before if one[by] == row.get(by) and one.get("id") in ids]
    return row | {name: held[0][name] for name in names if held}
