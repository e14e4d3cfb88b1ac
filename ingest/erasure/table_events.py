"""Reads what events of subject tables reference and which personal values they hold, in both of their images."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.batches.group_stats import CHANGE, Group, belongs_to, groups_by_slice
from ingest.batches.rules import Rules
from ingest.batches.schemas import Schemas
from ingest.changelog.change import EVENT_ID, quoted
from ingest.changelog.image_reader import ImageChoice, ImageReader
from ingest.erasure.context import ErasureContext
from ingest.evolution.inferred.inference import stored_column
from ingest.evolution.life import Lives
from ingest.evolution.policies import TableColumn
from ingest.jvm.plain_json import WITHOUT_LIMITS
from ingest.lakehouse.bronze import COORDINATES
from ingest.loop.suppression.event_references import key_references, with_key
from ingest.loop.told_tables import names_of_group
from ingest.merge.images import changes
from ingest.merge.table_schema import TableSchema
from ingest.names import caseless
from ingest.values.columns import Column
from ingest.values.render import rendered

COLUMN, KIND, VALUE = "_ingest_column", "_ingest_kind", "_ingest_value"
"""Columns: a personal column, the kind of its logical type, and a value of it as JSON."""
_IMAGE = "_ingest_image"
_VALUES = T.ArrayType(
    T.StructType([T.StructField(name, T.StringType()) for name in (COLUMN, KIND, VALUE)]), containsNull=False
)
_IMAGES = T.StructType([T.StructField(name, T.MapType(T.StringType(), T.StringType())) for name in ("before", "after")])
_EITHER = T.StructType([*_IMAGES.fields, T.StructField("payload", _IMAGES)])
_AS_WRITTEN = "string"
"""The kind of a value that its column's type can't hold."""


class TableEvents:
    """The events of subject tables among some events."""

    def __init__(self, context: ErasureContext, events: DataFrame, schemas: Schemas | None = None) -> None:
        """`schemas`: those that are known already, to which new ones are added."""
        self._events = events
        self._rules = rules_of_readers(context)
        self._table_schemas = {e.table_schema.table: e.table_schema for e in context.table_schemas.entries}
        self._lives = {e.table_schema.table: e.lives for e in context.table_schemas.entries}
        self._schemas = schemas or schemas_of(self._rules)
        self._groups: dict[str, list[Group]] = {}
        of_subjects = events.where(F.col("source_table").isin(*self._rules.subjects.tables))
        for group in groups_by_slice(of_subjects, F.lit(0)).get(0, []):
            if group.table is not None and group.kind == CHANGE and group.problem is None:
                self._groups.setdefault(group.table, []).append(group)
        self._schemas.learn(events, [g for groups in self._groups.values() for g in groups])

    @property
    def tables(self) -> Collection[str]:
        """Returns the tables of the events."""
        return self._groups.keys()

    def references(self, table: str) -> DataFrame | None:
        """Returns `key_references` of a table's events; None if there are none."""
        if table not in self._groups:
            return None
        table_schema = self._table_schemas.get(table)
        known_columns = tuple(map(stored_column, table_schema.columns)) if table_schema is not None else ()
        key = table_schema.key if table_schema is not None else self._rules.primary_keys.get(table, ())
        incoming = [(group, with_key(wire, key, known_columns)) for group, wire in self._with_columns(table)]
        stored = () if table_schema is None else table_schema.columns
        by = (table, key, incoming, known_columns, self._rules, stored, self._told(table))
        return key_references(self._events, None, *by)

    def values(self, table: str, columns: Collection[str], coordinates: DataFrame) -> DataFrame | None:
        """Returns `EVENT_ID`, `COLUMN`, `KIND` and `VALUE` of each value of these `columns` of a table in either image
        of its events at these `COORDINATES`; None if there are none. Encrypted values are left out. `columns`: by the
        names that they have in the table or in the event."""
        wanted = {caseless(name): name for name in columns}
        frames = []
        for group, arrived in self._with_columns(table):
            told, spelling = self._told(table), self._rules.spelling(table)
            names = dict(spelling.table_names([c.name for c in arrived], columns))
            names |= {} if told is None else names_of_group(group, arrived, (), told, spelling)
            named = ((c, (wanted.get(caseless(names[c.name])) or wanted.get(caseless(c.name)))) for c in arrived)
            found = [(column, name) for column, name in named if name is not None and column.sealed is None]
            of_group = self._events.where(belongs_to(group)).join(coordinates, COORDINATES, "left_semi")
            frames += [] if not found else [_values(of_group, table, found, self._rules.placeholder)]
        return reduce(DataFrame.unionByName, frames) if frames else None

    def _with_columns(self, table: str) -> list[tuple[Group, tuple[Column, ...]]]:
        types = self._rules.columns.get(table, {})
        return [(group, self._schemas.columns(group, types)) for group in self._groups.get(table, ())]

    def _told(self, table: str) -> Lives | None:
        now = self._lives.get(table)
        return now if now is not None and now.are_told else None


def rules_of_readers(context: ErasureContext) -> Rules:
    """Returns the rules with the types that any of the readers knows."""
    rules = context.rules
    columns = reduce(lambda known, reader: known | dict(reader.columns), context.readers, dict(rules.columns))
    return replace(rules, columns=columns)


def schemas_of(rules: Rules) -> Schemas:
    return Schemas(rules.shredded.columns, rules.times_out_of_range, nesting_depth=rules.limits.nesting_depth)


def _values(events: DataFrame, table: str, columns: list[tuple[Column, str]], placeholder: str) -> DataFrame:
    """Returns the values of these columns of events of one group. `columns`: each with the name that it gets."""
    read = [_of_type(events, table, columns, placeholder, choice) for choice in (ImageChoice.AFTER, ImageChoice.BEFORE)]
    typed = reduce(DataFrame.unionByName, read)
    in_type = typed.select(EVENT_ID, _IMAGE, COLUMN).distinct()
    # A value that the type can't hold, such as that of a quarantined event, is taken as it is written.
    rest = _as_written(events, columns, placeholder).join(in_type, [EVENT_ID, _IMAGE, COLUMN], "left_anti")
    return typed.unionByName(rest).select(EVENT_ID, COLUMN, KIND, VALUE).distinct()


def _of_type(
    events: DataFrame, table: str, columns: list[tuple[Column, str]], placeholder: str, choice: ImageChoice
) -> DataFrame:
    """Returns the values of one image that are of their column's type."""
    wire = tuple(column for column, _ in columns)
    table_schema = TableSchema(table, (), tuple(TableColumn(c.name, c.type) for c in wire))
    read = changes(events, table_schema, ImageReader(wire, placeholder, (), choice))
    values = [
        F.struct(
            F.lit(name).alias(COLUMN),
            F.lit(str(column.type.kind)).alias(KIND),
            F.to_json(F.struct(rendered(quoted(column.name), column.type).alias("v"))).alias(VALUE),
        )
        for column, name in columns
    ]
    exploded = read.select(EVENT_ID, F.explode(F.array(*values).cast(_VALUES)).alias("value"))
    return exploded.select(EVENT_ID, F.lit(choice.name).alias(_IMAGE), "value.*").where(F.col(VALUE) != "{}")


def _as_written(events: DataFrame, columns: list[tuple[Column, str]], placeholder: str) -> DataFrame:
    """Returns the values of both images as texts."""
    value = F.from_json(F.col("value").cast("string"), _EITHER, WITHOUT_LIMITS)
    names = F.create_map(*(F.lit(part) for column, name in columns for part in (column.name, name)))
    images = [
        F.struct(
            F.lit(choice.name).alias(_IMAGE), F.coalesce(F.col(f"v.payload.{at}"), F.col(f"v.{at}")).alias("image")
        )
        for choice, at in ((ImageChoice.AFTER, "after"), (ImageChoice.BEFORE, "before"))
    ]
    event = F.struct("topic", "partition", "offset").alias(EVENT_ID)
    image = events.select(event, value.alias("v")).select(EVENT_ID, F.explode(F.array(*images)).alias("i"))
    fields = image.select(EVENT_ID, f"i.{_IMAGE}", F.explode("i.image").alias("name", "text"))
    named = fields.withColumn(COLUMN, F.element_at(names, F.col("name")))
    written = named.where(F.col(COLUMN).isNotNull() & F.col("text").isNotNull() & (F.col("text") != placeholder))
    return written.select(
        EVENT_ID,
        _IMAGE,
        COLUMN,
        F.lit(_AS_WRITTEN).alias(KIND),
        F.to_json(F.struct(F.col("text").alias("v"))).alias(VALUE),
    )
