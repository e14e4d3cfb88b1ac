"""Rows that are marked as gone while their files stay: Delta's deletion vectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.delta.conflict_retry import concurrent_commit
from ingest.delta.data_file import DataFile
from ingest.delta.vector_store import RowNumbers, VectorStore, vector_store
from ingest.internal_columns import LOCATION

GoneRows = DataFrame | Mapping[str, RowNumbers]
"""Rows of a table by their `LOCATION`; where they are few, by the names of their files instead."""


def numbers_of(spark: SparkSession, row: Column) -> Column:
    """An aggregate: the numbers `row` of a group as a struct with the fields of `RowNumbers`; null is none."""
    numbers = vector_store(spark).bitmap(row)
    return F.struct(numbers["cardinality"].alias("count"), numbers["bitmap"].alias("bitmap"))


def thinned(
    spark: SparkSession, log: Any, path: str, files: Mapping[str, DataFile], gone: GoneRows
) -> tuple[list[Any], list[DataFile]]:
    """Writes the vectors of `files`, those of the table at `path` by their names, that lose the rows `gone`. Delta's
    pairs of actions for them, and the files of which nothing is left.

    Raises Contended where one of them is gone by now."""
    store = vector_store(spark)
    pairs, emptied = [], []
    for made in _vectors(store, log, path, files, gone):
        file = files.get(made.filePath())
        if file is None:
            raise concurrent_commit(path)
        whole = store.touched(file.name, file.action, made.deletionVector(), made.matchedRowCount())
        if whole.isFullyReplaced():
            emptied.append(file)
        else:
            pairs.append(file.action.removeRows(made.deletionVector(), True, True))
    return pairs, emptied


def _vectors(store: VectorStore, log: Any, path: str, files: Mapping[str, DataFile], gone: GoneRows) -> Iterable[Any]:
    if isinstance(gone, DataFrame):
        return store.of_rows(_with_vectors(gone, files), log)
    if not gone.keys() <= files.keys():
        raise concurrent_commit(path)
    return store.of_files(((name, files[name].action.deletionVector(), rows) for name, rows in gone.items()), log)


def _with_vectors(gone: DataFrame, files: Mapping[str, DataFile]) -> DataFrame:
    """The rows as Delta asks for them, with what is marked in their files already."""
    known = {name: f.action.deletionVector() for name, f in files.items()}
    before = [F.lit(text) for n, v in known.items() if v is not None for text in (n, v.serializeToBase64())]
    at = F.col(LOCATION)
    vector = F.element_at(F.create_map(*before), at["file"]) if before else F.lit(None).cast("string")
    return gone.select(at["file"].alias("filePath"), vector.alias("deletionVectorId"), at["row"].alias("rowIndexCol"))
