"""A number that is another one for each batch, kept out of the code that Spark generates: with it in there Spark would
write and compile anew, for every batch, all that captures or profiles it."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def non_foldable(number: int) -> Column:
    """`number` as a bigint. Spark folds what it can into a constant of its code, but no function of an array."""
    return F.element_at(F.transform(F.array(F.lit(number).cast("bigint")), lambda one: one), 1)
