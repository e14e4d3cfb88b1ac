"""Explains why a query can't be run, by the class and the error condition of what Spark raised."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException

from ingest.errors import ConfigError, IngestError
from ingest.sql.table_names import TableNames

_ABSENT = "TABLE_OR_VIEW_NOT_FOUND"
_TYPES_CHANGED = "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA"
_QUOTED = re.compile(r"`((?:[^`]|``)*)`")


class QueryFailed(IngestError):
    """A query ended before it had an answer."""


@dataclass
class Known:
    """What explains a failure. `tables`: set once they are known."""

    tables: TableNames = field(default_factory=lambda: TableNames(()))


@contextmanager
def explaining() -> Iterator[Known]:
    """Turns what Spark raises within the block into a sentence with a remedy, without values of rows."""
    known = Known()
    try:
        yield known
    except (PySparkException, Py4JError, OSError) as error:
        raise _explained(error, known.tables) from error


def _explained(error: BaseException, tables: TableNames) -> IngestError:
    condition = (error.getCondition() if isinstance(error, PySparkException) else None) or type(error).__name__
    parameters = error.getMessageParameters() or {} if isinstance(error, PySparkException) else {}
    if condition == _ABSENT and (written := parameters.get("relationName")):
        return tables.absent(_unquoted(written))
    if condition == _TYPES_CHANGED:
        return _types_changed(parameters)
    if isinstance(error, ParseException | AnalysisException):
        first = str(error).strip().splitlines()[0]
        return ConfigError(
            f"the query can't be run ({condition}): {first}", "see the tables with SHOW TABLES IN <schema>"
        )
    return QueryFailed(
        f"the query failed while it ran ({condition})",
        "correct it, or run it again with --debug for the whole trace; nothing was changed",
    )


def _unquoted(written: str) -> str:
    """`a`.`b` as a.b."""
    parts = [part.replace("``", "`") for part in _QUOTED.findall(written)]
    return ".".join(parts) or written


def _types_changed(parameters: dict[str, str]) -> ConfigError:
    return ConfigError(repr(parameters), "")
