"""Refuses tables whose images are MongoDB documents: its connector writes each image as one text."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import functions as F

from ingest.batches.group_stats import Group, belongs_to
from ingest.batches.table_batch import TableBatch
from ingest.errors import TableUnusable
from ingest.evolution.inference import inferred_columns


def documents_unsupported() -> TableUnusable:
    """Returns the error of a table of documents."""
    return TableUnusable(
        "documents",
        "its images are documents of MongoDB, each written as one text, and no rows",
        "leave it out (source: {exclude_tables: …}), or capture it anew with rows (ExtractNewDocumentState unwraps "
        "documents)",
    )


def require_rows(batch: TableBatch, groups: Iterable[Group]) -> None:
    """Raises TableUnusable where changes without a schema are documents. To be called for a table that has no columns
    yet."""
    for group in groups:
        if group.schema_id is None and not inferred_columns(group.kinds):
            value = F.col("value").cast("string")
            image = F.coalesce(F.get_json_object(value, "$.payload.after"), F.get_json_object(value, "$.after"))
            identified = F.get_json_object(image, "$._id").isNotNull().alias("identified")
            first = batch.events.where(belongs_to(group)).select(identified).first()
            if first is not None and first["identified"]:
                raise documents_unsupported()
