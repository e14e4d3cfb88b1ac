"""The tables of a pipeline: silver, pending rows, row histories and the changes that these are computed from."""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.erasure.context import ErasureContext
from ingest.erasure.masking import Masking
from ingest.erasure.places import HISTORY, PENDING, SILVER
from ingest.erasure.places.place import ITEM, PLACE, FoundRows, Removed
from ingest.erasure.removal_run import RemovalRun
from ingest.internal_columns import LOCATION
from ingest.lakehouse.silver import Silver
from ingest.loop.suppression.late_children import LateChildren
from ingest.merge.actions import TOMBSTONE_KEY, tombstone_key
from ingest.merge.table_schema import TableSchema
from ingest.spark.checkpoints import checkpoint, checkpoint_scope
from ingest.suppression.key_references import OWN_KEYS, REFERENCES, foreign_keys, own_keys


class RowReferences:
    """The stored rows of all tables, which a search reads whole."""

    def __init__(self, context: ErasureContext) -> None:
        self._context = context
        self._table_schemas = {e.table_schema.table: e.table_schema for e in context.table_schemas.entries}

    def extend(self, _: DataFrame) -> bool:
        return False

    def of_table(self, table: str) -> DataFrame | None:
        """Returns `PLACE`, `ITEM`, the key's `TOMBSTONE_KEY` and the references of all stored rows of the table."""
        table_schema = self._table_schemas.get(table)
        if table_schema is None:
            return None
        self._context.rules.subjects.require_columns(table, table_schema.key, table_schema.names)
        state = self._context.table_state(table)
        history_tables = [(HISTORY, stored) for stored in (state.row_history.tables if state.row_history else ())]
        parts = ((SILVER, state.silver), (PENDING, state.pending), *history_tables)
        frames = [self._rows(place, stored, table_schema) for place, stored in parts if stored.exists()]
        return reduce(DataFrame.unionByName, frames) if frames else None

    def values(self, _: str, __: Collection[str], ___: DataFrame) -> None:
        """Returns None: every value of a row comes from an event."""

    def _rows(self, place: str, stored: Silver, table_schema: TableSchema) -> DataFrame:
        own = own_keys(table_schema)
        item = F.to_json(F.struct(F.lit(stored.path), LOCATION))
        hashed = tombstone_key(table_schema.key, table_schema.key_types)
        key = hashed if table_schema.key else F.lit(None).cast("binary")
        return stored.located().select(
            F.lit(place).alias(PLACE),
            item.alias(ITEM),
            key.alias(TOMBSTONE_KEY),
            own.alias(OWN_KEYS),
            F.concat(own, foreign_keys(table_schema, self._context.rules.subjects)).alias(REFERENCES),
        )


def find(found: FoundRows) -> DataFrame:
    return found.in_places(SILVER, PENDING, HISTORY)


def remove(run: RemovalRun) -> Removed:
    """Removes the rows that reference keys in the ledger, or leaves them masked, and rewrites files that hold removed
    rows."""
    context, masks = run.context, run.context.rules.masks
    table_schemas = [entry.table_schema for entry in context.subject_tables]
    masking = Masking(context.spark, context.pipeline, context.rules, table_schemas, run.cutoffs)
    late_children = LateChildren(
        context.ledger, context.keys, context.rules.subjects, run.cutoffs, context.table_state, masks, masking.save
    )
    with checkpoint_scope():
        keys = checkpoint(context.ledger.keys())
        rows = late_children.remove(context.table_schemas.entries, keys, run.faulty.failed)
    masked = {"masked": masking.merge_saved()} if masks else {}
    files = run.for_each_table(
        lambda entry: sum(
            stored.purge(entry.table_schema) for stored in context.table_state(entry.table_schema.table).tables
        )
    )
    return Removed({"rows": rows, **masked, "files": files})
