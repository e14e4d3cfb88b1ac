"""Plans that are made once and run over other rows, or over other files (`ingest.prepared` in `java/`)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ingest.jvm.classes import java_class, static_method


class JavaFrames:
    """DataFrames, handed to the JVM once."""

    def __init__(self, frames: Sequence[DataFrame]) -> None:
        self.spark = frames[0].sparkSession
        self.java = java_class(self.spark._jvm, "java.util.ArrayList")()
        for frame in frames:
            self.java.add(frame._jdf)

    def columns(self) -> Hashable:
        """Returns the columns of all frames; equal where names and types are."""
        columns: Hashable = _static(self.spark, "columns")(self.java)
        return columns


class RowPlan:
    """The plan of a query over rows with given columns. It must be referenced as long as tasks run it: local tasks find
    it in the driver."""

    def __init__(
        self, spark: SparkSession, query: Callable[..., DataFrame], by: tuple[Hashable, ...], columns: Hashable
    ) -> None:
        """`by`: the query's first arguments. `columns`: those of its inputs (`JavaFrames.columns`)."""
        self._spark = spark
        slots = _static(spark, "slots")(spark._jsparkSession, columns)
        self._planned = query(*by, *(DataFrame(slots.get(number), spark) for number in range(slots.size())))
        self._plan = _static(spark, "plan")(self._planned._jdf, slots)

    @property
    def repeats(self) -> bool:
        """Returns True if the plan can be run again."""
        return self._plan is not None

    def answer(self, given: JavaFrames, once: bool) -> DataFrame:
        """Returns the query's result for the rows of `given`. `once`: checkpointed."""
        answer = _static(self._spark, "answer")(self._planned._jdf, self._plan, given.java, once)
        return DataFrame(answer, self._spark)

    def to_json(self, given: JavaFrames) -> str:
        """Returns the result of a query whose rows are objects in JSON, as a JSON array."""
        return str(_static(self._spark, "toJson")(self._plan, given.java))


class ScanPlan:
    """The plan of a query over the rows of files. It must be referenced as `RowPlan`."""

    def __init__(self, query: Callable[..., DataFrame], by: tuple[Hashable, ...], rows: DataFrame) -> None:
        """`by`: the query's first arguments. `rows`: those of some of the files."""
        self._spark = rows.sparkSession
        self._planned = query(*by, rows)
        self._plan = _static(self._spark, "scan")(self._planned._jdf)

    @property
    def repeats(self) -> bool:
        """Returns True if the plan can be run over other files."""
        return self._plan is not None

    def answer(self, index: Any) -> DataFrame:
        """Returns the query's result for the files of `index`, Spark's `FileIndex`."""
        return DataFrame(_static(self._spark, "scanned")(self._planned._jdf, self._plan, index), self._spark)


def _static(spark: SparkSession, method: str) -> Any:
    """Returns a static method of the library's `PreparedQuery`."""
    return static_method(spark._jvm, "ingest.prepared.PreparedQuery", method)
