"""Divides the events of one schema by their positions, so that each part is read in one way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.batches.group_stats import DecodingKey, Group, has_decoding_key
from ingest.changelog.image_reader import ImageReader
from ingest.changelog.position import is_read_without_position, position_literal
from ingest.errors import TableUnusable
from ingest.evolution.definition import Place, is_at_or_above
from ingest.evolution.followed import keeps_name
from ingest.evolution.life import Lives, TypeStep
from ingest.evolution.policies import IncompatibleType
from ingest.evolution.readings import Means, PlaceRange, boundaries, means, reading
from ingest.evolution.type_steps import ColumnCannotHold, casts, is_of_type
from ingest.merge.table_schema import TableSchema
from ingest.names import caseless
from ingest.values.columns import Column
from ingest.values.postgres_cast import Cast


@dataclass(frozen=True)
class DecodingPart:
    """The reader of events with one `DecodingKey`. `ops`: theirs, None for all. `begin`, `end`: the range of their
    positions, without `end`; None for no bound. `has_position`: True for events that came with a position, False for
    the others, None for all."""

    decoding_key: DecodingKey
    ops: tuple[str, ...] | None
    reader: ImageReader
    begin: Place | None = None
    end: Place | None = None
    has_position: bool | None = None

    def of(self, events: DataFrame) -> DataFrame:
        """Returns the part's events."""
        rows = events.where(has_decoding_key(self.decoding_key))
        if self.ops is not None:
            rows = rows.where(F.col("op").isin(*self.ops))
        rows = _between(rows, self.begin, self.end)
        if self.has_position is not None:
            rows = rows.where(is_read_without_position(F.col("position")) != self.has_position)
        return rows


def _between(events: DataFrame, begin: Place | None, end: Place | None) -> DataFrame:
    """Returns the events at positions from `begin` on, below `end`; None for no bound."""
    if begin is not None:
        events = events.where(F.col("position") >= position_literal(begin))
    if end is not None:
        events = events.where(F.col("position") < position_literal(end))
    return events


def parts_by_position(
    group: Group, ops: tuple[str, ...] | None, reader: ImageReader, lives: Lives, table_schema: TableSchema
) -> Iterator[DecodingPart]:
    """Yields the parts of a group, without events of a relation that is gone. `reader`: reads all columns of the
    schema, or all that events without one have. Values of these are not converted."""
    part = DecodingPart(group.decoding_key, ops, reader)
    newest = lives.places[-1] if lives.places else group.first_position
    if group.first_position >= newest:
        yield replace(part, reader=_newest_reader(reader, lives, table_schema))
        return
    has_position = None
    if group.may_have_unplaced_reads:
        # A read without a position is as new as the table, wherever it is placed.
        has_position = True
        yield replace(part, reader=_newest_reader(reader, lives, table_schema), has_position=False)
    begins = [None, *boundaries(lives, group.first_position, group.last_position)]
    # Events from before the table was created anew concern no row, and may have none of its columns.
    begins = [begin for begin in begins if is_at_or_above(begin or group.first_position, lives.begin)]
    if not begins:
        return
    readers = [_reader_at(begin or group.first_position, reader, lives, table_schema) for begin in begins]
    if group.schema_id is None:
        readers = [_without_casts(one) for one in readers]
    changes = [n for n in range(len(begins)) if n == 0 or readers[n] != readers[n - 1]]
    for number, following in zip(changes, [*changes[1:], None], strict=True):
        end = None if following is None else begins[following]
        yield replace(part, reader=readers[number], begin=begins[number], end=end, has_position=has_position)


def _without_casts(reader: ImageReader) -> ImageReader:
    """Returns the reader without conversions of values in events."""
    fills = tuple(one for one in reader.casts if one[0] in reader.lacking_by_name)
    return replace(reader, casts=fills, unfit=frozenset())


def _newest_reader(reader: ImageReader, lives: Lives, table_schema: TableSchema) -> ImageReader:
    """Returns the reader of events with the table's newest definition, without columns of which no message tells yet
    and whose names other columns had before."""
    gone = tuple((column, None) for column, life in lives.shown.items() if life.end is not None)
    names = dict(reader.names)
    shown = [(c, name) for c in reader.wire if keeps_name(name := names.get(c.name, c.name), lives)]
    newest = {name: lives.shown[name].types[-1:] for _, name in shown if name in lives.shown}
    wire, converted = tuple(column for column, _ in shown), _casts(shown, newest, table_schema)
    return replace(reader, wire=wire, lacking=gone, casts=converted, unfit=_unfit(shown, newest))


def _unfit(columns: Iterable[tuple[Column, str]], chains: Mapping[str, Sequence[TypeStep]]) -> frozenset[str]:
    """Returns `ImageReader.unfit`. `columns`, `chains`: as for `_casts`."""
    sent = ((column.type, name) for column, name in columns if not (column.inferred or column.is_cast))
    return frozenset(name for own, name in sent if any(not is_of_type(own, step) for step in chains.get(name, ())[:1]))


def _casts(
    columns: Iterable[tuple[Column, str]], chains: Mapping[str, Sequence[TypeStep]], table_schema: TableSchema
) -> tuple[tuple[str, tuple[Cast, ...] | None], ...]:
    """Returns `ImageReader.casts` of columns of events with their names in the table. `chains`: the types that the
    values pass. Raises TableUnusable if a column of the table holds no value of one."""
    targets = {column.name: column.type for column in table_schema.columns}
    found = []
    for column, name in columns:
        if name in chains and name in targets:
            try:
                found.append((name, casts(column.type, chains[name], targets[name])))
            except ColumnCannotHold as error:
                raise TableUnusable(
                    IncompatibleType.code,
                    f"{IncompatibleType(name, targets[name], column.type)}",
                    f"fold the table anew (ingest backfill PIPELINE --rebuild --table {table_schema.table})",
                ) from error
    return tuple((name, passed) for name, passed in found if passed != ())


def _reader_at(at: Place, reader: ImageReader, lives: Lives, table_schema: TableSchema) -> ImageReader:
    """Returns the reader of events at one position, and at all others up to the next place of the lives: without
    columns that the table doesn't show, and with the newest names. Columns of the key are always read. In a keyless
    table, whose rows are told apart by all columns, one that is dropped is null in events from before too."""
    names = dict(reader.names)
    arrived = [replace(column, name=names.get(column.name, column.name)) for column in reader.wire]
    read = reading(lives, arrived, PlaceRange(at, at))
    known = {caseless(step.name) for life in lives.columns for step in life.names}
    gone = set() if table_schema.key else {column for column, life in lives.shown.items() if life.end is not None}
    lacking = tuple(
        (column, fill.column)
        for column, fill in read.lacking.items()
        if column not in gone and means(lives, lives.shown[column], at) is not Means.VALUE
    )
    shown = {name: column for name, column in read.names.items() if column not in gone}
    unread = {*table_schema.key} - {*shown.values()}
    read_columns = [
        (column, shown.get(renamed.name, renamed.name))
        for column, renamed in zip(reader.wire, arrived, strict=True)
        if renamed.name in shown or renamed.name in unread or caseless(renamed.name) not in known
    ]
    fills = ((fill.column, name) for name, fill in read.lacking.items() if fill.column is not None)
    # A key of a relation that is gone may have had another type.
    chains = {**read.chains, **dict.fromkeys(unread, ())}
    return replace(
        reader,
        casts=_casts((*read_columns, *fills), chains, table_schema),
        unfit=_unfit(read_columns, chains),
        wire=tuple(column for column, _ in read_columns),
        names=tuple((column.name, name) for column, name in read_columns if column.name != name),
        lacking=(*lacking, *((column, None) for column in sorted(gone))),
    )
