"""The chain of a ledger's entries: what tells that one was changed, removed or inserted. Plain values, no session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Head(NamedTuple):
    """An entry up to which a ledger is known. Each entry's hash covers the one before, so that equal heads have equal
    entries before them."""

    number: int
    hash: str


NO_ENTRY = Head(0, "")


@dataclass(frozen=True)
class LedgerFault:
    """A fault of the ledger, at entry `number`."""

    number: int
    problem: str


class Entry(Protocol):
    """What the chain is made of."""

    @property
    def number(self) -> int: ...
    @property
    def previous(self) -> str: ...
    @property
    def hash(self) -> str: ...
    @property
    def keys(self) -> int: ...
    @property
    def keys_digest(self) -> str | None: ...


def chain_faults(
    entries: Iterable[tuple[Entry, str]], digests: Mapping[int, tuple[int, str | None]]
) -> Iterator[LedgerFault]:
    """Yields the faults of entries in their order, each given with the hash that it was stored with. `digests`: number
    of the entry → number and digest of the stored keys."""
    left = dict(digests)
    number, previous = NO_ENTRY
    for entry, stored_hash in entries:
        if entry.number != number + 1:
            yield LedgerFault(
                entry.number, f"follows entry {number}: entries between are missing, or it is a duplicate"
            )
        elif entry.previous != previous:
            yield LedgerFault(entry.number, f"does not follow from entry {number}: the previous hash differs")
        if entry.hash != stored_hash:
            yield LedgerFault(entry.number, "was changed")
        if left.pop(entry.number, (0, None)) != (entry.keys, entry.keys_digest):
            yield LedgerFault(entry.number, "its keys are not those that it was written with")
        number, previous = entry.number, stored_hash
    yield from (LedgerFault(orphan, "has keys, but the entry is missing") for orphan in sorted(left))


def missing_from(hashes: Mapping[int, str], known: Iterable[Head], where: str) -> Iterator[LedgerFault]:
    """Yields a fault for each entry that is `known` elsewhere and not the ledger's own. `hashes`: number → hash of the
    ledger's entries."""
    last = max(hashes, default=0)
    for number, hash_ in known:
        if number > last:
            ends = f"ends at entry {last}" if last else "is empty or gone"
            yield LedgerFault(number, f"is known to {where}, and the ledger {ends}")
        elif number and hashes.get(number) != hash_:
            yield LedgerFault(number, f"is another one than {where} knows: the ledger was altered or rolled back")
