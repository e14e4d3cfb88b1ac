"""Ranges of offsets of a limited size."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ingest.errors import SourceRefused
from ingest.sources.contract import OffsetRange, Offsets


def messages_first(starts: Offsets, ends: Offsets, messages: Collection[str], limit: int) -> OffsetRange | None:
    """Returns a range as `limited` does, with all that the topics `messages` hold; with nothing else while they hold
    more than the limit."""
    first = {topic: partitions for topic, partitions in ends.items() if topic in messages}
    rest = {topic: partitions for topic, partitions in ends.items() if topic not in messages}
    if (of_messages := limited(starts, first, limit)) is None:
        return limited(starts, rest, limit)
    if of_messages.behind or (of_rest := limited(starts, rest, max(1, limit - of_messages.size))) is None:
        behind = of_messages.behind + sum(end - starts[t][p] for t, ps in rest.items() for p, end in ps.items())
        return replace(of_messages, behind=behind)
    return extended(of_messages, of_rest)


def extended(one: OffsetRange | None, other: OffsetRange | None) -> OffsetRange | None:
    """Returns both ranges as one. They have no topic in common."""
    if one is None or other is None:
        return one or other
    return OffsetRange(one.start | other.start, one.end | other.end, behind=one.behind + other.behind)


def limited(starts: Offsets, ends: Offsets, limit: int) -> OffsetRange | None:
    """Returns a range of about `limit` records at most, in proportion to each partition's lag; None if there is no lag.

    Raises SourceRefused where a partition ends before its start offset: the topic was recreated."""
    behind = {
        (topic, partition): end - starts[topic][partition]
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
    }
    for (topic, partition), count in behind.items():
        if count < 0:
            raise SourceRefused(
                f"partition {partition} of topic {topic} ends at {ends[topic][partition]}, before the offset "
                f"{starts[topic][partition]} that bronze has reached: the topic was recreated",
                "capture it under a new pipeline name, or restore the topic",
            )
    total = sum(behind.values())
    if total == 0:
        return None
    start: Offsets = {}
    end: Offsets = {}
    for (topic, partition), count in behind.items():
        if count:
            share = count if total <= limit else max(1, count * limit // total)
            start.setdefault(topic, {})[partition] = starts[topic][partition]
            end.setdefault(topic, {})[partition] = starts[topic][partition] + share
    span = OffsetRange(start, end)
    return replace(span, behind=total - span.size)
