"""Numbers that change from batch to batch, hidden from constant folding."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def non_foldable(number: int) -> Column:
    """Returns `number` as a bigint that Spark does not fold into a literal of its generated code. A literal would have
    the code of a stage compiled anew for every batch. Spark folds no higher-order function of an array."""
    return F.element_at(F.transform(F.array(F.lit(number).cast("bigint")), lambda one: one), 1)
