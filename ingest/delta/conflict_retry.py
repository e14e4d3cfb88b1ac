"""Conflicts of two writers at one table. Delta's commits are optimistic: the second writer's commit fails, and it reads
the new snapshot and does its work again."""

from __future__ import annotations

from collections.abc import Callable

from delta import exceptions
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    retry_if_not_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from ingest.errors import Contended

# In Python, other than in Java, these have no common base class.
DELTA_CONFLICTS: tuple[type[Exception], ...] = (
    exceptions.DeltaConcurrentModificationException,
    exceptions.ConcurrentWriteException,
    exceptions.MetadataChangedException,
    exceptions.ProtocolChangedException,
    exceptions.ConcurrentAppendException,
    exceptions.ConcurrentDeleteReadException,
    exceptions.ConcurrentDeleteDeleteException,
    exceptions.ConcurrentTransactionException,
)

CONFLICTS: tuple[type[Exception], ...] = (Contended, *DELTA_CONFLICTS)


class Overtaken(Contended):
    """Another run of the same pipeline has begun or merged the slice that this run was about to merge. A retry would
    fail again: the run has to start anew, from what is merged by then."""


_ATTEMPTS = 10
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 5.0
"""Seconds."""


def retry_on_conflict(
    conflicts: tuple[type[Exception], ...] = CONFLICTS, before_sleep: Callable[[RetryCallState], None] | None = None
) -> Retrying:
    """Returns a retrier: it calls its function until that raises none of `conflicts`, at most ten times, with random
    waits. Overtaken is raised at once."""
    return Retrying(
        before_sleep=before_sleep,
        retry=retry_if_exception_type(conflicts) & retry_if_not_exception_type(Overtaken),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(multiplier=_FIRST_WAIT, max=_LONGEST_WAIT),
        reraise=True,
    )


def overtaken_by_another_run(what: str) -> Overtaken:
    """Returns the error of a run whose slice another run has begun or merged. `what`: the table, or the pipeline's
    tables."""
    return Overtaken(
        f"another run of this pipeline merges the same events of {what}",
        "one run is enough; the same command goes on after what the other has merged",
    )


def concurrent_commit(path: str) -> Contended:
    """Returns the error of a commit to the table at `path` whose snapshot another writer has changed since."""
    return Contended(
        f"another writer changed {path} while a commit to it was under way",
        "run the same again: it goes on where it stood",
    )
