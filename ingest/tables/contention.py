"""Two writers at one table: who comes second looks at what the first has left, and does the same again."""

from __future__ import annotations

from collections.abc import Callable

from delta import exceptions
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from ingest.errors import Contended

# None of them is the others' parent, as they are in Java.
COLLISIONS_OF_DELTA: tuple[type[Exception], ...] = (
    exceptions.DeltaConcurrentModificationException,
    exceptions.ConcurrentWriteException,
    exceptions.MetadataChangedException,
    exceptions.ProtocolChangedException,
    exceptions.ConcurrentAppendException,
    exceptions.ConcurrentDeleteReadException,
    exceptions.ConcurrentDeleteDeleteException,
    exceptions.ConcurrentTransactionException,
)

COLLISIONS: tuple[type[Exception], ...] = (Contended, *COLLISIONS_OF_DELTA)
_ATTEMPTS = 10
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 5.0
"""Seconds."""


def again(
    collisions: tuple[type[Exception], ...] = COLLISIONS, before_sleep: Callable[[RetryCallState], None] | None = None
) -> Retrying:
    """Calls what it is given until it doesn't collide, a bounded number of times."""
    return Retrying(
        before_sleep=before_sleep,
        retry=retry_if_exception_type(collisions),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(multiplier=_FIRST_WAIT, max=_LONGEST_WAIT),
        reraise=True,
    )


def changed_meanwhile(path: str) -> Contended:
    """What a commit to the table at `path` is told that builds on what isn't there any more."""
    return Contended(
        f"another writer changed {path} while a commit to it was under way",
        "run the same again: it goes on where it stood",
    )
