"""How far the cutoffs of all requests reach, so that statistics of a batch tell whether it concerns any of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ingest.batches.group_stats import Group
from ingest.suppression.cutoff import Cutoff

_TopicPartition = tuple[str, int]


@dataclass(frozen=True)
class Reach:
    """The reach of all cutoffs in one table. `ends`: topic partition → the highest end of an offset. `position`: the
    highest last position; None if no request knew one. `partitions`: those whose ends every request knew, and
    `placeless`: those whose ends every request without a position knew; None if there is no such request."""

    ends: Mapping[_TopicPartition, int]
    position: tuple[int, ...] | None
    partitions: frozenset[_TopicPartition]
    placeless: frozenset[_TopicPartition] | None

    def covers(self, group: Group) -> bool:
        """Returns whether any event of the group may stand at or below a cutoff."""
        lowest, partitions = group.first[2], frozenset(group.partitions)
        if any(lowest < self.ends.get(partition, lowest) for partition in partitions):
            return True
        # The lowest of a group without positions, or of which some have none, is at or below every other.
        if self.position is not None and group.first_position[:5] <= self.position[:5]:
            return True
        if not group.has_positions:
            return not partitions <= self.partitions
        return self.placeless is not None and not partitions <= self.placeless


def reach_of(cutoffs: Iterable[Cutoff], table: str) -> Reach:
    """Returns the reach of these cutoffs in a table."""
    ends: dict[_TopicPartition, int] = {}
    known, placeless = Counter[_TopicPartition](), Counter[_TopicPartition]()
    requests = placeless_requests = 0
    position: tuple[int, ...] | None = None
    for cutoff in cutoffs:
        own = {(topic, p): end for topic, partitions in cutoff.offsets.items() for p, end in partitions.items()}
        for partition, end in own.items():
            ends[partition] = max(end, ends.get(partition, end))
        known.update(own.keys())
        requests += 1
        last = cutoff.position(table)
        if last is None:
            placeless.update(own.keys())
            placeless_requests += 1
        else:
            position = last if position is None else max(position, last)
    return Reach(
        ends,
        position,
        frozenset(p for p, count in known.items() if count == requests),
        frozenset(p for p, count in placeless.items() if count == placeless_requests) if placeless_requests else None,
    )
