"""Tells by which key events identify their rows, where that is another one than the key in force of their table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ingest.changelog.spelling import Spelling
from ingest.errors import TableUnusable

Key = tuple[str, ...]


def other_keys(
    carried: Iterable[Key],
    in_force: Key,
    former: Sequence[Key],
    columns: Sequence[str],
    spelling: Spelling,
    is_whole: bool,
    told: Mapping[Key, Key] | None = None,
) -> dict[Key, Key]:
    """Returns those keys of events that are not the key in force: names in the events → names of the table's columns,
    in one order for all that name the same columns.

    `carried`: names in the events. `former`: other keys that are known. `columns`: the table's. `is_whole`: a record's
    key names all of its columns; without a schema one that names fewer than the key in force may leave out a null. A
    key of columns that the table doesn't have identifies none of its rows, and an event without a key is identified by
    its image. `told`: names in the events → columns of the table, where messages tell that they have other names."""
    told = told or {}
    found: dict[Key, Key] = {}
    for names in carried:
        if names == in_force and names not in told:
            continue
        key = told.get(names) or tuple(spelling.table_names(names, columns).values())
        is_part = not is_whole and set(key) < set(in_force)
        if key and set(key) <= set(columns) and set(key) != set(in_force) and not is_part:
            found[names] = next((one for one in (*former, *found.values()) if set(one) == set(key)), key)
    return found


KEY_DROPPED = "key-dropped"


def dropped_key(table: str, key: Key, why: str) -> TableUnusable:
    """Returns the error of a table that can't go on without its key. `why`: the reason."""
    names = ", ".join(key)
    return TableUnusable(
        KEY_DROPPED,
        f"its rows were told apart by ({names}), and {why}",
        f"fold it anew (ingest backfill PIPELINE --rebuild --table {table}); or declare tables.{table}.primary_key: "
        f"[{names}] if these columns still tell its rows apart",
    )


def newest_key(in_force: Key, at: tuple[int, ...], others: Mapping[Key, tuple[int, ...]]) -> Key:
    """Returns the key of the event of the highest position. `at`: the highest position of events with the key in force.
    `others`: the same for other keys."""
    return max({in_force: at, **others}.items(), key=lambda one: one[1])[0]
