"""Rows that are marked as gone while their files stay: Delta's deletion vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import LOCATION
from ingest.tables.contention import changed_meanwhile
from ingest.tables.data_file import DataFile
from ingest.tables.delta_jvm import delta_classes


def thinned(log: Any, path: str, files: Mapping[str, DataFile], rows: DataFrame) -> tuple[list[Any], list[DataFile]]:
    """Writes the vectors of `files`, those of the table at `path` by their names, that lose the rows at these
    `LOCATION`s. Delta's pairs of actions for them, and the files of which nothing is left.

    Raises Contended where one of them is gone by now."""
    delta = delta_classes(rows.sparkSession)
    known = {name: f.action.deletionVector() for name, f in files.items()}
    before = [F.lit(text) for n, v in known.items() if v is not None for text in (n, v.serializeToBase64())]
    at = F.col(LOCATION)
    gone = F.element_at(F.create_map(*before), at["file"]) if before else F.lit(None).cast("string")
    named = rows.select(at["file"].alias("filePath"), gone.alias("deletionVectorId"), at["row"].alias("rowIndexCol"))
    pairs, emptied = [], []
    for made in delta.deletion_vectors(named, log):
        file = files.get(made.filePath())
        if file is None:
            raise changed_meanwhile(path)
        whole = delta.touched(file.name, file.action, made.deletionVector(), made.matchedRowCount())
        if whole.isFullyReplaced():
            emptied.append(file)
        else:
            pairs.append(file.action.removeRows(made.deletionVector(), True, True))
    return pairs, emptied
