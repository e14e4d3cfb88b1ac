"""Tells which failures are the fault of the one table that was being merged."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ingest.delta.conflict_retry import CONFLICTS
from ingest.errors import ChangelogUnusable, ConfigError, IngestError, LakehouseDamaged, StopRequested, TableUnusable
from ingest.failures.table import FAILURES
from ingest.jvm.causes import JAVA_ERRORS, Cause, causes

UNUSABLE, SETTINGS, DAMAGED, ENGINE = "table-unusable", "table-settings", "table-damaged", "engine-error"
_CODES: tuple[tuple[type[IngestError], str], ...] = (
    (ChangelogUnusable, UNUSABLE),
    (ConfigError, SETTINGS),
    (LakehouseDamaged, DAMAGED),
)
_UNEXPECTED = (*JAVA_ERRORS, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Failures of unforeseen causes that a table's data or schema may lead to."""
_log = logging.getLogger(__name__)
FAULTS = (IngestError, *_UNEXPECTED)
"""Errors that may be a table's fault. All others stop a run."""


@dataclass(frozen=True)
class Reason:
    """The reason for setting a table aside. `text`: what happened, and what to do. `fault`: what was raised."""

    code: str
    text: str
    fault: BaseException | None = None


def reason_of(table: str, error: BaseException, work: str = "merged") -> Reason | None:
    """Returns why an error of the work on a table leaves the table out. None where it is no fault of the table: another
    writer, a transport, a lack of memory, the end of the engine, or a stop that the pipeline's file asks for. `work`:
    what could not be done to the table."""
    if isinstance(error, (*CONFLICTS, StopRequested)):
        return None
    if isinstance(error, IngestError):
        code = next((code for kind, code in _CODES if isinstance(error, kind)), None)
        code = error.code if isinstance(error, TableUnusable) else code
        return None if code is None else Reason(code, f"table {table}: {error.problem} → {error.remedy}", error)
    if not isinstance(error, _UNEXPECTED):
        return None
    # The error's kind, not its text, which may quote rows and literals.
    chain = causes(error)
    known = {failure.kind for failure in FAILURES if failure.matches(chain)}
    if LakehouseDamaged in known and not any(kind.retried for kind in known):
        return Reason(
            DAMAGED,
            f"table {table}: a file of it is missing, or can't be read → restore it from a copy, or fold the table "
            f"anew: ingest backfill PIPELINE --rebuild --table {table}",
            error,
        )
    return None if known else _unforeseen(table, error, chain, work)


def _unforeseen(table: str, error: BaseException, chain: list[Cause], work: str) -> Reason:
    name = next((c.name for c in reversed(chain) if c.condition is not None), chain[-1].name)
    return Reason(
        ENGINE,
        f"table {table}: it could not be {work} ({name}) → this looks like a defect of ingest: report it with the "
        "trace that ingest run --debug shows at its end; each run tries the table again when it starts",
        error,
    )


def raised(_: str, error: Exception) -> None:
    """Raises a table's error, where a command has to stop at it."""
    raise error


class FaultyTables:
    """The tables that one command could not work on; it goes on with all others. `work`: as of `reason_of`."""

    def __init__(self, work: str) -> None:
        self._work = work
        self.reasons: dict[str, Reason] = {}

    def __bool__(self) -> bool:
        return bool(self.reasons)

    def failed(self, table: str, error: Exception) -> None:
        """Keeps why an error leaves a table out, which is logged. Raises the error if it is no fault of the table."""
        reason = reason_of(table, error, self._work)
        if reason is None:
            raise error
        if table not in self.reasons:
            _log.error("%s", reason.text)
        self.reasons[table] = reason
