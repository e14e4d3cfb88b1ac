"""Codes and reasons of events that can't be applied. A reason names columns and a remedy, never a value."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from ingest.changelog.change import CODE, DELETED, REASON, quoted

NO_KEY, NO_IMAGE, UNDECODABLE, PARTIAL = "no-key", "no-image", "undecodable", "partial-image"
_WITHOUT_A_KEY = (
    ": without a key no row is found by less. Set REPLICA IDENTITY FULL (MySQL: binlog_row_image=FULL), or declare the "
    "table's primary_key, or append_only"
)
_NOT_SENT = (
    ". Neither the record's key nor the row image holds one (a large value that did not change is not sent: REPLICA "
    "IDENTITY FULL sends it)"
)


def refusal(key: Sequence[str], image: str) -> tuple[Column, Column]:
    """Returns the columns `_ingest_code` and `_ingest_reason`, null if the event can be applied.

    They need these columns: `_deleted`, `_ingest_is_corrupt` and `_ingest_imageless` (boolean); `_ingest_unavailable`
    (names of columns that were not sent), `_ingest_broken` (of those that can't be decoded), `_ingest_named` (of those
    in the event; only for a key of several columns). `image`: the name of the image that the columns come from.
    """
    has_image = ~F.col(DELETED)
    missing_flags = _missing_flags(key)
    names = [F.when(is_missing, F.lit(k)) for k, is_missing in zip(key, missing_flags, strict=True)]
    missing = F.array_join(F.array(*names), ", ") if names else F.lit("")
    advice = "" if key else _WITHOUT_A_KEY
    cases = [
        (
            F.col("_ingest_is_corrupt") & has_image,
            UNDECODABLE,
            F.lit(
                "a value doesn't fit the type of its column, an object names a field twice, or a number of a column "
                "without a schema has more than 38 digits: declare the column's type"
            ),
        ),
        (F.col("_ingest_imageless") & has_image, NO_IMAGE, F.lit(f"the event has no row image (`{image}`){advice}")),
        (
            F.lit(not key) & (F.size("_ingest_unavailable") > 0),
            PARTIAL,
            F.concat(
                F.lit("these columns were not sent: "), F.array_join("_ingest_unavailable", ", "), F.lit(_WITHOUT_A_KEY)
            ),
        ),
        (
            F.size("_ingest_broken") > 0,
            UNDECODABLE,
            F.concat(F.lit("can't be read by their type: "), F.array_join("_ingest_broken", ", ")),
        ),
        (
            reduce(lambda one, other: one | other, missing_flags, F.lit(False)),
            NO_KEY,
            F.concat(F.lit("no value for key column: "), missing, F.lit(_NOT_SENT)),
        ),
    ]
    code = reason = F.lit(None).cast("string")
    for test, named, why in reversed(cases):
        code = F.when(test, F.lit(named)).otherwise(code)
        reason = F.when(test, why).otherwise(reason)
    return code.alias(CODE), reason.alias(REASON)


def _missing_flags(key: Sequence[str]) -> list[Column]:
    """Returns a flag per key column, true if it has no value. In a key of several columns a null of a column in the
    event is a value, unless all of them are null."""
    if len(key) < 2:
        return [quoted(k).isNull() for k in key]
    all_null = F.coalesce(*(quoted(k).cast("string") for k in key)).isNull()
    named = (F.coalesce(F.array_contains("_ingest_named", k), F.lit(False)) for k in key)
    return [quoted(k).isNull() & (all_null | ~is_present) for k, is_present in zip(key, named, strict=True)]
