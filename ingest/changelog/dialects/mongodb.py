"""MongoDB: its tables are refused, since its connector writes each image as one text, a document.

Behind ExtractNewDocumentState images are rows, and their order is that of the topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from ingest.changelog.dialects.dialect import Dialect, Documents
from ingest.errors import TableUnusable


def _refusal() -> TableUnusable:
    return TableUnusable(
        "documents",
        "its images are documents of MongoDB, each written as one text, and no rows",
        "leave it out (source: {exclude_tables: …}), or capture it anew with rows (ExtractNewDocumentState unwraps "
        "documents)",
    )


def _is_declared(image: Mapping[str, Any]) -> bool:
    return image.get("type") == "string"


def _is_document(image: Column) -> Column:
    return F.get_json_object(image, "$._id").isNotNull()


DIALECT = Dialect(connectors=("mongodb",), documents=Documents(_refusal, _is_declared, _is_document))
