"""How the events of one schema are divided by the lives of the table's columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ingest.batches.decoding_parts import DecodingPart, parts_by_position
from ingest.batches.group_stats import Group
from ingest.changelog.image_reader import ImageReader
from ingest.evolution.definition import Place, Version
from ingest.evolution.lives import lives
from ingest.evolution.policies import TableColumn
from ingest.merge.table_schema import TableSchema
from ingest.values.columns import Column
from ingest.values.types import Kind, LogicalType
from tests.evolution.versions import INT, TEXT, WIRE, at, column, columns_of, seen, told

FILLED = column("t", default="11")
TABLE = TableSchema("s.t", ("id",), tuple(TableColumn(name, INT) for name in ("id", "n", "t")))
UNPLACED: Place = (0, 0, 0, 0, 2, 5, 0)


def parts(
    versions: Collection[Version],
    first: Place,
    last: Place,
    *columns: str | Column,
    table: TableSchema = TABLE,
    schema_id: int | None = 7,
) -> list[DecodingPart]:
    group = Group("s.t", "change", None, schema_id, True, 2, ("t", 0, 0), None, first, last, (("t", 0),))
    wire = tuple(Column(c, WIRE, INT) if isinstance(c, str) else c for c in columns)
    reader = ImageReader(wire, "?")
    return list(parts_by_position(group, None, reader, lives(versions), table))


def lacking(part: DecodingPart) -> dict[str, str | None]:
    return {name: None if fill is None else fill.default for name, fill in part.reader.lacking}


def read(part: DecodingPart) -> Sequence[str]:
    return [c.name for c in part.reader.wire]


def test_events_above_all_changes_are_one_part_with_the_reader_of_all_columns() -> None:
    (part,) = parts([seen(10, "id"), seen(20, "id", FILLED)], at(20), at(30), "id", "t")
    assert (part.begin, part.end, part.has_position) == (None, None, None)
    assert part.reader == ImageReader(tuple(columns_of("id", "t")), "?")


def test_column_that_is_gone_is_null() -> None:
    (part,) = parts([seen(10, "id", FILLED), seen(20, "id")], at(25), at(30), "id")
    assert (lacking(part), read(part)) == ({"t": None}, ["id"])


def test_fill_is_read_below_the_column_and_null_above_its_end() -> None:
    versions = [seen(10, "id"), seen(20, "id", FILLED), seen(30, "id")]
    below, above = parts(versions, at(5), at(40), "id")[::2]
    assert (lacking(below), below.end) == ({"t": "11"}, at(20))
    assert (lacking(above), above.begin, above.end) == ({"t": None}, at(30), None)


def test_values_of_a_dropped_column_are_not_read_as_those_of_the_new_one() -> None:
    versions = [seen(10, "id", "n"), seen(20, "id"), seen(30, "id", "n")]
    old, new = parts(versions, at(10), at(30), "id", "n")
    assert (read(old), lacking(old), old.end) == (["id"], {"n": None}, at(30))
    assert (read(new), lacking(new), new.begin) == (["id", "n"], {}, at(30))


def test_renamed_column_is_read_by_the_name_of_its_position() -> None:
    versions = [told(10, column("id", 1), column("n", 2)), told(20, column("id", 1), column("m", 2))]
    table = TableSchema("s.t", ("id",), tuple(TableColumn(name, INT) for name in ("id", "m")))
    (part,) = parts(versions, at(12), at(15), "id", "n", table=table)
    assert (read(part), part.reader.names, lacking(part)) == (["id", "n"], (("n", "m"),), {})


def test_reads_without_a_position_are_as_new_as_the_table() -> None:
    versions = [seen(10, "id"), seen(20, "id", FILLED)]
    without, below, above = parts(versions, UNPLACED, at(30), "id", "t")
    assert (without.has_position, read(without), lacking(without)) == (False, ["id", "t"], {})
    assert (below.has_position, read(below), lacking(below), below.end) == (True, ["id"], {"t": "11"}, at(20))
    assert (above.has_position, read(above), above.begin) == (True, ["id", "t"], at(20))


def test_parts_that_are_read_alike_are_one() -> None:
    versions = [seen(10, "id", "n"), seen(20, "id", column("n", type_=None)), seen(30, "id", "n")]
    assert len(parts(versions, at(5), at(40), "id", "n")) == 1


def test_dropped_column_of_a_keyless_table_is_null_in_all_events() -> None:
    keyless = TableSchema("s.t", (), TABLE.columns)
    (part,) = parts([seen(10, "id", FILLED), seen(20, "id")], at(5), at(15), "id", "t", table=keyless)
    assert (read(part), lacking(part)) == (["id"], {"t": None})


def test_a_name_that_is_another_column_now_is_read_as_the_column_that_it_was() -> None:
    """The key was `a`; its name belongs to a new column, and it has that of one that is gone."""
    versions = [
        told(10, column("a", 1), column("b", 2), key=("a",)),
        told(20, column("b", 1), column("a", 3), key=("b",)),
    ]
    table = TableSchema("s.t", ("b",), tuple(TableColumn(name, INT) for name in ("b", "a")))
    old, new = parts(versions, at(12), at(25), "a", "b", table=table)
    assert (read(old), old.reader.names, lacking(old)) == (["a"], (("a", "b"),), {"a": None})
    assert (read(new), new.reader.names, lacking(new)) == (["a", "b"], (), {})


def test_values_of_events_without_a_schema_are_not_converted() -> None:
    versions = [told(10, column("id", 1), column("n", 2)), told(20, column("id", 1), column("t", 2, type_=TEXT))]
    table = TableSchema("s.t", ("id",), (TableColumn("id", INT), TableColumn("t", TEXT)))
    (part,) = parts(versions, at(12), at(15), "id", "n", table=table)
    assert part.reader.casts
    (plain,) = parts(versions, at(12), at(15), "id", "n", table=table, schema_id=None)
    assert (plain.reader.casts, plain.reader.names) == ((), (("n", "t"),))


def test_values_of_a_type_that_nothing_tells_at_their_positions_are_not_read() -> None:
    point = LogicalType(Kind.STRUCT, elements=(TEXT, TEXT), names=("x", "y"))
    versions = [seen(10, "id", "n"), seen(20, "id", column("n", type_=point))]
    table = TableSchema("s.t", ("id",), (TableColumn("id", INT), TableColumn("n", point)))
    between, newest = parts(versions, at(15), at(30), "id", Column("n", WIRE, point), table=table)
    assert [sorted(part.reader.unfit) for part in (between, newest)] == [["n"], []]
    (above,) = parts(versions, at(25), at(30), "id", "n", table=table)
    assert above.reader.unfit == {"n"}


def test_columns_of_which_no_message_tells_yet_wait_if_another_one_had_their_name() -> None:
    renamed = [told(10, column("id", 1), column("n", 2)), told(20, column("id", 1), column("t", 2))]
    table = TableSchema("s.t", ("id",), (TableColumn("id", INT), TableColumn("t", INT)))
    (part,) = parts(renamed, at(25), at(30), "id", "n", "t", table=table)
    assert read(part) == ["id", "t"]


def test_events_of_a_relation_that_is_gone_are_not_read() -> None:
    table = TableSchema("s.t", ("id",), (TableColumn("id", TEXT),))
    created = told(30, column("id", 1, type_=TEXT), relation=2, key=("id",))
    versions = [told(10, column("no", 1), key=("no",)), created]
    assert parts(versions, at(15), at(25), "no", table=table) == []
    (part,) = parts(versions, at(15), at(35), "id", table=table)
    assert (part.begin, part.end) == (created.since, None)
    unplaced, _ = parts(versions, UNPLACED, at(35), "id", table=table)
    assert (unplaced.has_position, unplaced.begin) == (False, None)
