"""Refuses tables whose images are documents, each written as one text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import functions as F

from ingest.batches.group_stats import Group, belongs_to
from ingest.batches.table_batch import TableBatch
from ingest.changelog.dialects.registry import document_images
from ingest.evolution.inferred.inference import inferred_columns


def require_rows_declared(image: Mapping[str, Any]) -> None:
    """Raises TableUnusable if the schema `image` declares documents."""
    for documents in document_images():
        if documents.is_declared(image):
            raise documents.refusal()


def require_rows(batch: TableBatch, groups: Iterable[Group]) -> None:
    """Raises TableUnusable where changes without a schema are documents. To be called for a table that has no columns
    yet."""
    for group in groups:
        if group.schema_id is None and not inferred_columns(group.kinds):
            value = F.col("value").cast("string")
            image = F.coalesce(F.get_json_object(value, "$.payload.after"), F.get_json_object(value, "$.after"))
            kinds = document_images()
            first = batch.events.where(belongs_to(group)).select(*(kind.is_document(image) for kind in kinds)).first()
            for kind, is_document in zip(kinds, first or (), strict=False):
                if is_document:
                    raise kind.refusal()
