"""Deletion vectors: rows that are deleted without rewriting their files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.delta.conflict_retry import concurrent_commit
from ingest.delta.data_file import DataFile
from ingest.delta.vector_store import RowNumbers, VectorStore, vector_store
from ingest.internal_columns import LOCATION

DeletedRows = DataFrame | Mapping[str, RowNumbers]
"""Rows to delete from a table: a frame with their `LOCATION`, or, if they are few, file name → row numbers."""


def row_numbers(spark: SparkSession, row: Column) -> Column:
    """Returns an aggregate: the row numbers of a group as a struct with the fields of `RowNumbers`; nulls don't
    count."""
    numbers = vector_store(spark).bitmap(row)
    return F.struct(numbers["cardinality"].alias("count"), numbers["bitmap"].alias("bitmap"))


def write_vectors(
    spark: SparkSession, log: Any, path: str, files: Mapping[str, DataFile], deleted: DeletedRows
) -> tuple[list[Any], list[DataFile]]:
    """Writes the deletion vectors of the files that lose rows. Returns Delta's pair of remove and add for each, and the
    files of which no row is left. `files`: name → live file of the table at `path`.

    Raises Contended if one of the files was removed by another writer."""
    store = vector_store(spark)
    pairs, emptied = [], []
    for result in _results(store, log, path, files, deleted):
        file = files.get(result.filePath())
        if file is None:
            raise concurrent_commit(path)
        touched = store.touched(file.name, file.action, result.deletionVector(), result.matchedRowCount())
        if touched.isFullyReplaced():
            emptied.append(file)
        else:
            pairs.append(file.action.removeRows(result.deletionVector(), True, True))
    return pairs, emptied


def _results(
    store: VectorStore, log: Any, path: str, files: Mapping[str, DataFile], deleted: DeletedRows
) -> Iterable[Any]:
    if isinstance(deleted, DataFrame):
        return store.write_for_rows(_with_vectors(deleted, files), log)
    if not deleted.keys() <= files.keys():
        raise concurrent_commit(path)
    return store.write_for_files(((n, files[n].action.deletionVector(), rows) for n, rows in deleted.items()), log)


def _with_vectors(deleted: DataFrame, files: Mapping[str, DataFile]) -> DataFrame:
    """Returns the rows in the form that Delta reads, with the present deletion vectors of their files."""
    present = {name: f.action.deletionVector() for name, f in files.items()}
    pairs = [F.lit(text) for n, v in present.items() if v is not None for text in (n, v.serializeToBase64())]
    at = F.col(LOCATION)
    vector = F.element_at(F.create_map(*pairs), at["file"]) if pairs else F.lit(None).cast("string")
    return deleted.select(
        at["file"].alias("filePath"), vector.alias("deletionVectorId"), at["row"].alias("rowIndexCol")
    )
