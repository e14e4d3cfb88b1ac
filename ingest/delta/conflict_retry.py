"""Two writers at one table: who comes second looks at what the first has left, and does the same again."""

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

# None of them is the others' parent, as they are in Java.
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
    """Another run of the same pipeline has begun or merged what this one was about to merge. The same attempt would
    fail again: a run has to begin anew, from what is merged by then."""


_ATTEMPTS = 10
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 5.0
"""Seconds."""


def retry_on_conflict(
    collisions: tuple[type[Exception], ...] = CONFLICTS, before_sleep: Callable[[RetryCallState], None] | None = None
) -> Retrying:
    """Calls what it is given until it doesn't collide, a bounded number of times. Overtaken is raised at once."""
    return Retrying(
        before_sleep=before_sleep,
        retry=retry_if_exception_type(collisions) & retry_if_not_exception_type(Overtaken),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(multiplier=_FIRST_WAIT, max=_LONGEST_WAIT),
        reraise=True,
    )


def overtaken_by_another_run(what: str) -> Overtaken:
    """Returns the error of a run that finds its slice begun elsewhere or merged. `what`: a table, or the pipeline."""
    return Overtaken(
        f"another run of this pipeline merges the same events of {what}",
        "one run is enough; the same command goes on after what the other has merged",
    )


def concurrent_commit(path: str) -> Contended:
    """What a commit to the table at `path` is told that builds on what isn't there any more."""
    return Contended(
        f"another writer changed {path} while a commit to it was under way",
        "run the same again: it goes on where it stood",
    )
