"""A number that is another one for each batch, kept out of the code that Spark generates: with it in there every batch
would be compiled anew, by Spark and then, as it grows hot, by the JVM, which takes half of all CPU of small batches."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def varying(number: int) -> Column:
    """`number` as a bigint. Spark folds what it can into a constant of its code, but no function of an array."""
    return F.element_at(F.transform(F.array(F.lit(number).cast("bigint")), lambda one: one), 1)
