"""Tells which failures are the fault of the one table that was being merged."""

from __future__ import annotations

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
FAULTS = (IngestError, *_UNEXPECTED)
"""Errors that may be a table's fault. All others stop a run."""


@dataclass(frozen=True)
class Reason:
    """The reason for setting a table aside. `text`: what happened, and what to do. `fault`: what was raised."""

    code: str
    text: str
    fault: BaseException | None = None


def reason_of(table: str, error: BaseException) -> Reason | None:
    """Returns why an error of a table's merge sets the table aside. None where it is no fault of the table: another
    writer, a transport, a lack of memory, the end of the engine, or a stop that the pipeline's file asks for."""
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
    return None if known else _unforeseen(table, error, chain)


def _unforeseen(table: str, error: BaseException, chain: list[Cause]) -> Reason:
    name = next((c.name for c in reversed(chain) if c.condition is not None), chain[-1].name)
    return Reason(
        ENGINE,
        f"table {table}: it could not be merged ({name}) → this looks like a defect of ingest: report it with the "
        "trace that ingest run --debug shows at its end; each run tries the table again when it starts",
        error,
    )
