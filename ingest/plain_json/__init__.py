"""JSON in bytes, read as `from_json` reads it: what is plain, as most is that a connector writes, without a parser.

In bulk that takes a third of the time. A plan is longer by two steps for it, which few rows don't pay for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.java_source import called, define_function, reaches_tasks

CORRUPT = "_corrupt"
"""The field of a type that holds the text of what can't be read by it."""
_HERE = Path(__file__).parent


def opened(text: Column, into: T.StructType) -> Column:
    """The object in `text`."""
    return F.from_json(text, into, {"columnNameOfCorruptRecord": CORRUPT})


@dataclass(frozen=True)
class Plainly:
    """The bytes in `column`, read as `into` in three steps, of which each selects from the one before: the `plain`
    ones; that and the `rest`; the `whole`."""

    column: str
    into: T.StructType

    @property
    def name(self) -> str:
        """Of the column with what is `plain`."""
        return f"_plain_{self.column}"

    @property
    def names(self) -> tuple[str, str]:
        """Of the two columns that the last step is made of."""
        return self.name, self._rest

    @property
    def plain(self) -> Column:
        """What `opened` makes of it; null wherever that isn't certain."""
        return _plain(F.col(self.column), self.into).alias(self.name)

    @property
    def rest(self) -> Column:
        """The text of what is not plain."""
        # In the last step it is named twice: what is named once Spark puts there whole, and hands each value on for it.
        return F.when(F.col(self.name).isNull(), F.col(self.column).cast("string")).alias(self._rest)

    def whole(self, asked: Column | None = None) -> Column:
        """What `opened` makes of it. `asked`: which of the rest are."""
        rest = F.col(self._rest)
        text = rest if asked is None else F.when(rest.isNotNull() & asked, rest)
        return F.when(rest.isNull(), F.col(self.name)).otherwise(opened(text, self.into))

    @property
    def _rest(self) -> str:
        return f"_rest_{self.column}"


def _plain(value: Column, into: T.StructType) -> Column:
    """Executors beside this JVM don't know the class that reads it: there nothing is plain."""
    context: Any = SparkContext._active_spark_context
    if not reaches_tasks(context):
        return F.lit(None).cast(into)
    jvm = context._jvm
    kind = jvm.org.apache.spark.sql.types.DataType.fromJson(into.json())
    # Null for null, null where it is not certain, the same each time.
    return called(jvm, _reader(jvm)(kind, CORRUPT), "read", into, (value,), pure=True)


def tokens(jvm: Any) -> None:
    """Sees to it that `jvm` knows PlainJson and PlainValue, which other classes of this project extend."""
    define_function(jvm, _HERE / "PlainJson.java", ("NotPlain", "PlainJson"))
    define_function(jvm, _HERE / "PlainValue.java", ("PlainValue",))


@cache
def _reader(jvm: Any) -> Any:
    tokens(jvm)
    define_function(jvm, _HERE / "PlainRow.java", ("PlainRow", "PlainFields"))
    return jvm.org.apache.spark.sql.api.java.PlainRow
