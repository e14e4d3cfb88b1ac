"""Finds the rows and events of subjects in all places of a pipeline: those that reference their keys, table by table
along the foreign keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.config import Pipeline
from ingest.erasure.context import ErasureContext
from ingest.erasure.places.place import ITEM, PLACE, REQUEST, FoundRows, KeyReferences
from ingest.erasure.places.register import used_places
from ingest.loop.table_faults import FAULTS, FaultyTables
from ingest.spark.checkpoints import checkpoint
from ingest.suppression.key_references import KEY_HASH, OWN_KEYS, rows_referencing, with_key_hashes


@dataclass(frozen=True)
class SubjectItems:
    """What one table holds of the subjects. `items`: `PLACE`, `ITEM` and `REQUEST` of each row or event. `keys`:
    `REQUEST` and `KEY_HASH`. `values`: `REQUEST`, `COLUMN`, `KIND` and `VALUE` of personal columns, if asked for."""

    table: str
    items: DataFrame
    keys: DataFrame
    values: Sequence[DataFrame] = ()


class SubjectSearch:
    """Searches everything that a pipeline has read, captured or quarantined. Of histories it opens the spans that may
    reference the subjects."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, faulty: FaultyTables, values: bool = False) -> None:
        """`faulty`: takes the tables that can't be searched. `values`: return values of personal columns too."""
        self._faulty = faulty
        self._with_values = values
        self._context = ErasureContext.of(spark, pipeline)
        self._places = used_places(pipeline)
        self._references = [place.references(self._context) for place in self._places if place.references]

    def find(self, subjects: DataFrame) -> Iterator[SubjectItems]:
        """Yields the items of each table that leads to subjects, referenced tables first. `subjects`: `REQUEST` and
        `KEY_HASH` of their keys."""
        self._known_keys = subjects.select(REQUEST, KEY_HASH)
        for table in self._context.rules.subjects.tables:
            try:
                items = self._find_in(table)
            except FAULTS as error:
                self._faulty.failed(table, error)
                continue
            if items is not None:
                yield items

    def _find_in(self, table: str) -> SubjectItems | None:
        """Returns what one table holds; None if nothing of it is stored. Keys that its rows add are known from then
        on."""
        hashed: dict[KeyReferences, DataFrame | None] = {}
        while True:
            for references in self._references:
                if references.extend(self._known_keys) or references not in hashed:
                    hashed[references] = self._with_hashes(references.of_table(table))
            frames = [frame for frame in hashed.values() if frame is not None]
            if not frames:
                return None
            referencing = rows_referencing(reduce(DataFrame.unionByName, frames), F.broadcast(self._known_keys))
            found = checkpoint(referencing.dropDuplicates([PLACE, ITEM, REQUEST]))
            keys = checkpoint(found.select(REQUEST, F.explode(OWN_KEYS).alias(KEY_HASH)).distinct())
            new_keys = checkpoint(keys.join(self._known_keys, [REQUEST, KEY_HASH], "left_anti"))
            if new_keys.isEmpty():
                return SubjectItems(
                    table, self._items(FoundRows(self._context, table, found)), keys, self._values(table, found)
                )
            # A row that once had another owner or key has more events under that key.
            self._known_keys = checkpoint(self._known_keys.unionByName(new_keys))

    def _items(self, found: FoundRows) -> DataFrame:
        """Returns what all places hold of these rows."""
        items = [place.find(found) for place in self._places if place.find is not None]
        return reduce(DataFrame.unionByName, [frame for frame in items if frame is not None])

    def _values(self, table: str, found: DataFrame) -> Sequence[DataFrame]:
        """Returns the values of a table's personal columns in these rows, if they are asked for."""
        settings = self._context.pipeline.tables.get(table)
        columns = settings.collected_columns if settings is not None and self._with_values else ()
        frames = [references.values(table, columns, found) for references in self._references] if columns else []
        return [frame for frame in frames if frame is not None]

    def _with_hashes(self, references: DataFrame | None) -> DataFrame | None:
        keys = self._context.keys
        return None if references is None else checkpoint(with_key_hashes(references, keys, keys.newest))


def count_items(items: SubjectItems) -> dict[tuple[str, str], int]:
    """Returns (place, table) → number of rows or events."""
    per_place = items.items.select(PLACE, ITEM).distinct().groupBy(PLACE).count().orderBy(PLACE)
    return {(r[PLACE], items.table): r["count"] for r in per_place.collect()}  # a row per place
