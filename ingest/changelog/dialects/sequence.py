"""Sources without positions: a sequence column orders the changes of its table, otherwise only the topic does.

| field | value |
|---|---|
| major | sequence column, or 0 |
| minor, ordinal | 0 |
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from ingest.changelog.dialects.dialect import Place


def place_in_sequence(number: Column) -> Place:
    """Returns the place of an event that is ordered by `number`, its table's sequence column."""
    zero = F.lit(0).cast("bigint")
    return Place(number, zero, zero)


def place_in_topic() -> Place:
    """Returns the place of an event that only its partition and offset order."""
    return place_in_sequence(F.lit(0).cast("bigint"))
