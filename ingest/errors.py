"""What can go wrong, and for each kind: is it worth retrying, and what should the reader of the message do?

An `IngestError` is for people: it is printed as one sentence and a remedy, without a stack trace. Anything
else that escapes is a defect of this project.

Exit codes (Airflow and shells read them): 2 means "you need to change something, a retry can't help",
75 (`EX_TEMPFAIL`) means "the same command may succeed later".
"""

from __future__ import annotations

EXIT_DIFFERS = 1
EXIT_USER = 2
EXIT_TRANSIENT = 75


class IngestError(Exception):
    """A failure that its reader can act upon.

    `problem` says what happened and where (source, table, position), `remedy` what to do about it.
    Neither ever holds a value out of a row or a secret.
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
    """A pipeline file or an option can't be what the user meant."""


class PrerequisiteMissing(IngestError):
    """Java, disk space, a port or a package that this machine lacks."""


class SourceRefused(IngestError):
    """The source answered, and said no: authentication, an absent topic, a lost part of the log."""


class ChangelogUnusable(IngestError):
    """The changelog can't be folded as configured: no key, columns that contradict the table, a foreign writer."""


class TableUnusable(ChangelogUnusable):
    """One table can't be merged as it is; the others can. `code` names the kind of reason."""

    def __init__(self, code: str, problem: str, remedy: str) -> None:
        super().__init__(problem, remedy)
        self.code = code


class StopRequested(ChangelogUnusable):
    """The pipeline's file asks for a stop where this is met."""


class ProofFailed(IngestError):
    """What should have been proved was not: a scan missed a canary, or found what was to be certified as gone."""


class Unreachable(IngestError):
    """Nobody answered in time. The same command may succeed later."""

    exit_code = EXIT_TRANSIENT
    retried = True


class Contended(IngestError):
    """Two writers met at one table. Nothing is lost: the same command goes on where it stood."""

    exit_code = EXIT_TRANSIENT
    retried = True


class LakehouseDamaged(IngestError):
    """Files of a Delta table are missing or can't be read, or the table was written by a newer version of Delta."""


class StorageRefused(IngestError):
    """The storage of the lakehouse answered, and said no: permissions, credentials, or no space is left."""


class EngineOverloaded(IngestError):
    """Spark gave up for want of memory or time. The same command may succeed on a machine that is less busy."""

    exit_code = EXIT_TRANSIENT
    retried = True


class EngineDied(IngestError):
    """Spark's process was killed, such as for want of memory. The same command goes on where it stood."""

    exit_code = EXIT_TRANSIENT
    retried = True


class StackFailed(IngestError):
    """An embedded service did not start or died; its log says why."""

    exit_code = EXIT_TRANSIENT
    retried = True
