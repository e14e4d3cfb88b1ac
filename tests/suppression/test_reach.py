"""The reach of all cutoffs tells at once what each cutoff would tell by itself."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.batches.group_stats import CHANGE, Group
from ingest.loop.suppression.reach import reach_of
from ingest.suppression.cutoff import WHOLE_SOURCE, Cutoff

TABLE = "public.members"
GROUP = Group(TABLE, CHANGE, None, None, False, 1, ("a", 0, 0), None, (0,) * 7, (0,) * 7, ())
PARTITIONS = st.frozensets(st.tuples(st.sampled_from("ab"), st.integers(0, 1)), min_size=1)
ENDS = st.dictionaries(st.sampled_from("ab"), st.dictionaries(st.integers(0, 1), st.integers(0, 4)))
POSITION = st.integers(0, 4).map(lambda lsn: (0, lsn, 0, 0, 1, 0, 0))
CUTOFFS = st.builds(Cutoff, ENDS, st.dictionaries(st.sampled_from([WHOLE_SOURCE, TABLE, "other"]), POSITION))


def may_stand_before(group: Group, cutoff: Cutoff) -> bool:
    """Returns whether an event of the group may stand at or below one cutoff."""
    last = cutoff.position(TABLE)
    ends = [cutoff.offsets.get(topic, {}).get(partition) for topic, partition in group.partitions]
    by_offset = any(end is not None and group.first[2] < end for end in ends)
    by_position = last is not None and group.first_position[:5] <= last[:5]
    is_placed = last is not None and group.has_positions
    return by_offset or by_position or (not is_placed and None in ends)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(CUTOFFS, min_size=1, max_size=3), PARTITIONS, st.integers(0, 4), POSITION)
def test_reach_of_all_cutoffs_covers_what_one_of_them_does(
    cutoffs: list[Cutoff], partitions: frozenset[tuple[str, int]], offset: int, position: tuple[int, ...]
) -> None:
    first = (min(partitions)[0], min(partitions)[1], offset)
    group = replace(GROUP, first=first, first_position=position, partitions=tuple(sorted(partitions)))
    assert reach_of(cutoffs, TABLE).covers(group) == any(may_stand_before(group, cutoff) for cutoff in cutoffs)
