"""Collects what the events of a batch show of their table's definition."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.batches.group_stats import Group
from ingest.batches.rules import Rules
from ingest.batches.schema_runs import SchemaRun, runs_of_groups, schema_runs
from ingest.batches.schemas import Schemas
from ingest.batches.table_batch import TableBatch
from ingest.changelog.origin import database_of
from ingest.errors import Unreachable
from ingest.evolution.definition import UNKNOWN, Definition, Origin, Place, Version
from ingest.evolution.lives import lives
from ingest.evolution.schema_policy import Accepted
from ingest.evolution.seen_definitions import assumed_columns, read_versions, stored_version
from ingest.lakehouse.catalog import CatalogEntry
from ingest.names import caseless
from ingest.values.columns import Column
from ingest.values.types import LogicalType

_log = logging.getLogger(__name__)
Incoming = Sequence[tuple[Group, tuple[Column, ...]]]
"""Groups of changes, each with the columns that it came with."""
DefinitionOf = Callable[[Sequence[Column]], Definition | None]
"""Returns the definition of events with these columns; None if the table can't have them."""
Shape = frozenset[tuple[str, LogicalType | None]]
"""Names and types of a definition. Its defaults may be newer than the event."""


class SeenVersions:
    """The versions of tables' definitions that events show by their schemas. An event without a schema shows none: a
    column that it lacks may exist.

    The known versions of a table are those at the first event of each run of events with one shape, whatever the order
    in which events arrived."""

    def __init__(self, rules: Rules | None = None) -> None:
        self._rules = rules or Rules()
        self._definitions: dict[tuple[str, int], tuple[tuple[Column, ...], Definition, Shape]] = {}
        self._newest: dict[str, tuple[frozenset[Version], Version, Shape]] = {}

    def new(
        self,
        batch: TableBatch,
        incoming: Incoming,
        entry: CatalogEntry | None,
        schemas: Schemas,
        definition_of: DefinitionOf,
        told: Collection[Version] = (),
    ) -> frozenset[Version]:
        """Returns the versions that the groups of a batch show, and what the source's catalog tells of columns that are
        new in them. `told`: versions that messages tell."""
        definitions = _Definitions(self, batch.table, schemas, definition_of)
        shown = self._shown(batch, incoming, entry, definitions)
        known = shown | (entry.versions if entry else frozenset(told))
        shown |= _after_message(batch, incoming, told, known, definitions)
        return shown | self._read(batch.table, entry, shown) if shown else shown

    def _read(self, table: str, entry: CatalogEntry | None, shown: frozenset[Version]) -> frozenset[Version]:
        """Returns what the source's catalog tells of rows from before new columns, or has told where a table is folded
        anew; nothing if it can't be read."""
        known = entry.versions if entry else frozenset[Version]()
        assumed = assumed_columns(known, shown)
        begins = {life.begin for life in assumed}
        accepted = self._rules.accepted.get(table, Accepted()).versions
        read = frozenset(one for one in accepted if one.origin is Origin.READ and one.since in begins)
        assumed = tuple(life for life in assumed if life.begin not in {version.since for version in read})
        source, origin = self._rules.source_catalog, entry.origin if entry else ""
        if source is None or not assumed:
            return read
        try:
            found = source.columns(self._rules.names.in_source(table, origin), database_of(origin))
        except Unreachable as failure:
            text = "%s: %s, so what rows from before new columns read is assumed: %s; %s"
            _log.warning(text, table, failure.problem, ", ".join(life.column for life in assumed), failure.remedy)
            return read
        stored = {column.name for version in known | shown for column in version.definition.columns}
        names = self._rules.spelling(table).table_names(found, stored)
        sealed = {caseless(name) for name in self._rules.shredded.columns.get(table, ())}
        catalog = {
            names[name]: replace(one, fill=UNKNOWN) if caseless(name) in sealed else one for name, one in found.items()
        }
        return read | read_versions(known | shown, assumed, catalog)

    def _shown(
        self, batch: TableBatch, incoming: Incoming, entry: CatalogEntry | None, definitions: _Definitions
    ) -> frozenset[Version]:
        """Returns the versions that the groups of a batch show; none if all go on with the table's newest known
        definition. Events of another shape that are not above all merged ones are placed among these, by a job that
        reads the table's events of bronze in the range of positions concerned. If the pipeline has other readers, such
        as backfills, those that they have captured count too.

        Of a table without known versions, the first one stands for the columns that it has, if no message tells them.
        `entry`: the table's, None for a new one."""
        groups = {group: columns for group, columns in incoming if _has_schema(group, columns)}
        known = _shown_versions(entry) if entry else frozenset[Version]()
        if not groups or self._go_on(batch.table, groups, known, definitions.definition_of):
            return frozenset()
        changed = batch.events.where(batch.changed)
        shown_ids = sorted({group.schema_id for group in groups if group.schema_id is not None})
        shown = changed.where(F.col("schema_id").isin(shown_ids))
        runs = runs_of_groups(groups)
        if runs is None:
            runs = schema_runs(shown, batch.table)
        if entry is None:
            return definitions.versions(runs)
        highest = _highest_before(batch)
        if not known:
            # What older events looked like is not known, so those that come late show nothing.
            if any(run.first <= highest < run.last for run in runs):
                runs = schema_runs(shown, batch.table, (*highest[:-1], highest[-1] + 1))
            new = definitions.versions([run for run in runs if run.first > highest])
            is_assumed = new and not entry.told_versions
            return new | {stored_version(entry.table_schema.columns)} if is_assumed else new
        novel = _novel_runs(runs, sorted(known, key=lambda version: version.since), definitions)
        if not novel:
            return frozenset()
        lowest, last = min(run.first for run in novel), max(run.last for run in novel)
        others = batch.other_readers()
        if lowest > highest and others is None:
            return definitions.versions([run for run in runs if run.first >= lowest])
        # Below the lowest version, events of its shape have none of their own.
        begin = lowest if any(version.since <= lowest for version in known) else None
        end = min((version.since for version in known if version.since > last), default=None)
        past = _captured_before(batch, others).select(*changed.columns)
        runs = schema_runs(past.unionByName(changed), batch.table, begin, end)
        definitions.schemas.fetch(past, {run.schema_id: run.event for run in runs if run.schema_id not in shown_ids})
        return definitions.versions(runs)

    def _go_on(
        self,
        table: str,
        groups: Mapping[Group, tuple[Column, ...]],
        known: frozenset[Version],
        definition_of: DefinitionOf,
    ) -> bool:
        """Returns True if all groups have the newest shape, above the first event that had it."""
        if not known:
            return False
        if table not in self._newest or self._newest[table][0] is not known:
            version = max(known, key=lambda version: version.since)
            self._newest[table] = known, version, _shape(version.definition)
        _, newest, shape = self._newest[table]
        for group, columns in groups.items():
            if group.first_position < newest.since or group.schema_id is None:
                return False
            shown = self.definition(table, group.schema_id, columns, definition_of)
            if shown is None or shown[1] != shape:
                return False
        return True

    def definition(
        self, table: str, schema_id: int, columns: tuple[Column, ...], definition_of: DefinitionOf
    ) -> tuple[Definition, Shape] | None:
        """Returns the definition of events with a schema; None if the table can't have their columns."""
        found = self._definitions.get((table, schema_id))
        if found is None or found[0] is not columns:
            definition = definition_of(columns)
            if definition is None:
                return None
            found = columns, definition, _shape(definition)
            self._definitions[table, schema_id] = found
        return found[1:]


@dataclass(frozen=True)
class _Definitions:
    """The definitions of one table's schemas."""

    seen: SeenVersions
    table: str
    schemas: Schemas
    definition_of: DefinitionOf

    def of(self, run: SchemaRun) -> tuple[Definition, Shape] | None:
        columns = self.schemas.of_schema(run.schema_id, self.table)
        return self.seen.definition(self.table, run.schema_id, columns, self.definition_of) if columns else None

    def versions(self, runs: Sequence[SchemaRun]) -> frozenset[Version]:
        """Returns the versions that runs begin, in the order of positions; one that goes on with the shape of the run
        before it is left out."""
        shown = [(run, found) for run in runs if (found := self.of(run)) is not None]
        before: Shape | None = None
        versions = set[Version]()
        for run, (definition, shape) in shown:
            if shape != before:
                versions.add(Version(run.first, definition, Origin.SEEN))
            before = shape
        return frozenset(versions)


def _after_message(
    batch: TableBatch,
    incoming: Incoming,
    told: Collection[Version],
    known: frozenset[Version],
    definitions: _Definitions,
) -> frozenset[Version]:
    """Returns the versions that events show from the newest message on, if they may look like those before it and
    nothing else shows what they are now: of a table that follows a dropped one without a message, or whose types no
    event has shown since."""
    newest = max(told, key=lambda version: version.since, default=None)
    if newest is None or any(version.since > newest.since for version in known):
        return frozenset()
    ids = [g.schema_id for g, columns in incoming if _has_schema(g, columns) and g.last_position > newest.since]
    if not ids or not (newest.cause.drops_table or _has_unshown_types(known)):
        return frozenset()
    events = batch.events.where(batch.changed & F.col("schema_id").isin(ids))
    return definitions.versions(schema_runs(events, batch.table, newest.since))


def _has_unshown_types(known: frozenset[Version]) -> bool:
    """Returns True if the type of a column that exists is only told."""
    shown = lives(known).shown.values()
    return any(life.end is None and not life.types[-1].is_shown for life in shown)


def _shown_versions(entry: CatalogEntry) -> frozenset[Version]:
    """Returns the versions of an entry that events have shown, without those of the source's catalog."""
    found = entry.seen_versions
    others = frozenset(version for version in found if version.origin is Origin.READ)
    return found - others if others else found


def _novel_runs(runs: Sequence[SchemaRun], known: Sequence[Version], definitions: _Definitions) -> list[SchemaRun]:
    """Returns the runs in whose ranges the known versions, which are in order, tell another shape."""
    novel = []
    for run in runs:
        found = definitions.of(run)
        at_first = [version for version in known if version.since <= run.first]
        within = [version for version in known if run.first < version.since <= run.last]
        told = {_shape(version.definition) for version in (*at_first[-1:], *within)}
        if found is not None and told != {found[1]}:
            novel.append(run)
    return novel


def _shape(definition: Definition) -> Shape:
    return frozenset((caseless(column.name), column.type) for column in definition.columns)


def _has_schema(group: Group, columns: Sequence[Column]) -> bool:
    return group.schema_id is not None and bool(columns) and not any(column.inferred for column in columns)


def _captured_before(batch: TableBatch, others: DataFrame | None) -> DataFrame:
    """Returns the events of the batch's table that were captured before it and are merged, and those of `others`."""
    past, earlier = (batch.merged_before or batch.history)().where(batch.changed), batch.earlier_readers
    more = [] if earlier is None else [earlier.delivered.where(batch.changed)]
    more += [] if others is None else [others.where(batch.changed).select(*past.columns)]
    return reduce(DataFrame.unionByName, more, past)


def _highest_before(batch: TableBatch) -> Place:
    """Returns the highest position of the table's events before the batch; () if there are none."""
    highest = batch.highest_before()
    if batch.earlier_readers is None:
        return highest
    row = batch.earlier_readers.delivered.where(batch.changed).agg(F.max("position").alias("highest")).first()
    return max(highest, tuple(row["highest"] or ()) if row else ())
