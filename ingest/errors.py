"""The errors that users see: what happened, whether a retry can help, and what to do.

The command line prints an `IngestError` as one sentence and a remedy, without a stack trace. Any other exception that
escapes is a defect of this project.

Exit codes, which Airflow and shells read: 1 means that a comparison found a difference, 2 that the user has to change
something and a retry can't help, 3 that a certificate's signer is unknown, 75 (`EX_TEMPFAIL`) that the same command may
succeed later.
"""

from __future__ import annotations

EXIT_DIFFERS = 1
EXIT_USER = 2
EXIT_TRANSIENT = 75


class IngestError(Exception):
    """A failure that the user can act upon.

    `problem` says what happened and where (source, table, position), `remedy` what to do about it. Neither holds a
    row's value or a secret.
    """

    exit_code = EXIT_USER
    retried = False

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.problem} → {self.remedy}"


class ConfigError(IngestError):
    """A pipeline file or an option is invalid or contradicts itself."""


class PrerequisiteMissing(IngestError):
    """This machine lacks Java, disk space, a port or a package."""


class SourceRefused(IngestError):
    """The source answered with a refusal: failed authentication, a missing topic, a part of the log that is gone."""


class ChangelogUnusable(IngestError):
    """The changelog can't be merged as configured: it has no key, its columns contradict the table, or it has another
    writer."""


class TableUnusable(ChangelogUnusable):
    """One table can't be merged as it is; the others can. `code` names the kind of reason."""

    def __init__(self, code: str, problem: str, remedy: str) -> None:
        super().__init__(problem, remedy)
        self.code = code


class StopRequested(ChangelogUnusable):
    """An event was met at which the pipeline's file asks for a stop."""


class ProofFailed(IngestError):
    """A proof failed: a scan missed a canary, or found a value that was to be certified as removed."""


class Unreachable(IngestError):
    """A service did not answer in time. The same command may succeed later."""

    exit_code = EXIT_TRANSIENT
    retried = True


class Contended(IngestError):
    """Two writers changed one table at the same time. Nothing is lost: the same command continues where it stopped."""

    exit_code = EXIT_TRANSIENT
    retried = True


class LedgerIncomplete(IngestError):
    """The ledger of erasures lacks entries that are known elsewhere, or some were altered: erased subjects would come
    back."""


class SubjectHeld(IngestError):
    """The source still holds rows of a subject that was erased here."""


class LakehouseDamaged(IngestError):
    """Files of a Delta table are missing or can't be read, or the table was written by a newer version of Delta."""


class StorageRefused(IngestError):
    """The storage of the lakehouse answered with a refusal: permissions, credentials, or no space is left."""


class EngineOverloaded(IngestError):
    """Spark ran out of memory or time. The same command may succeed on a machine that is less busy."""

    exit_code = EXIT_TRANSIENT
    retried = True


class EngineDied(IngestError):
    """Spark's process was killed, for example because memory ran out. The same command continues where it stopped."""

    exit_code = EXIT_TRANSIENT
    retried = True


class StackFailed(IngestError):
    """An embedded service did not start, or died; its log says why."""

    exit_code = EXIT_TRANSIENT
    retried = True


class PortTaken(StackFailed):
    """An embedded service ended while it was starting, and another process has one of its ports."""
