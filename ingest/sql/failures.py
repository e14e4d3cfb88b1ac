"""Explains why a query can't be run, by the class and the error condition of Spark's exception."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession

from ingest.errors import ConfigError, IngestError
from ingest.jvm.causes import ENGINE_ERRORS
from ingest.sql.feed import readable_since
from ingest.sql.query_names import SEE_TABLES, QueryNames

_ABSENT = "TABLE_OR_VIEW_NOT_FOUND"
_TYPES_CHANGED = "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA"
_READ_ACROSS = "spark.databricks.delta.changeDataFeed.unsafeBatchReadOnIncompatibleSchemaChanges.enabled"
_QUOTED = re.compile(r"`((?:[^`]|``)*)`")


class QueryFailed(IngestError):
    """A query failed while it ran."""


@dataclass
class Query:
    """Facts for explaining a failure, set as soon as they are known. `elsewhere`: explains failures outside of the
    query, such as an unreachable store. `feeds`: as in `ReadOnlyStatement`."""

    spark: SparkSession
    elsewhere: Callable[[Exception], IngestError | None]
    tables: QueryNames = field(default_factory=lambda: QueryNames(()))
    feeds: frozenset[str] = frozenset()


@contextmanager
def explain_query_failures(
    spark: SparkSession, elsewhere: Callable[[Exception], IngestError | None]
) -> Iterator[Query]:
    """Converts Spark's exceptions in the block to a sentence with a remedy, without values of rows. `elsewhere`: as in
    `Query`."""
    query = Query(spark, elsewhere)
    try:
        yield query
    except (*ENGINE_ERRORS, OSError) as error:
        raise _to_ingest_error(error, query) from error


def _to_ingest_error(error: Exception, query: Query) -> IngestError:
    condition = (error.getCondition() if isinstance(error, PySparkException) else None) or type(error).__name__
    parameters = error.getMessageParameters() or {} if isinstance(error, PySparkException) else {}
    if condition == _ABSENT and (written := parameters.get("relationName")):
        return query.tables.absent(_unquoted(written))
    if condition == _TYPES_CHANGED:
        return _types_changed(query)
    if isinstance(error, ParseException | AnalysisException):
        first = str(error).strip().splitlines()[0]
        return ConfigError(f"the query can't be run ({condition}): {first}", SEE_TABLES)
    return query.elsewhere(error) or QueryFailed(
        f"the query failed while it ran ({condition})",
        "correct it, or run it again with --debug for the whole trace; nothing was changed",
    )


def _types_changed(query: Query) -> ConfigError:
    readable_feeds = []
    for feed in sorted(query.feeds):
        # The answer leaves out a table that can't be read.
        with suppress(*ENGINE_ERRORS):
            readable_feeds.append(
                f"that of {feed} from version {readable_since(query.spark, query.tables.path(feed) or feed)}"
            )
    return ConfigError(
        f"a column has changed its type within these versions of a change data feed ({_TYPES_CHANGED})",
        f"read {' and '.join(readable_feeds) or 'it from the version that changed the type'} on; where numbers became "
        f'wider numbers, older versions are read with spark: {{{_READ_ACROSS}: "true"}} in the pipeline\'s file',
    )


def _unquoted(written: str) -> str:
    """Returns `a`.`b` as a.b."""
    parts = [part.replace("``", "`") for part in _QUOTED.findall(written)]
    return ".".join(parts) or written
