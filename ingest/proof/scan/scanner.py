"""Scans all files of all places in parallel."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from ingest.proof.scan.physical_names import with_physical_names
from ingest.proof.scan.places import Place, Unreadable
from ingest.proof.scan.reading import EntryScan
from ingest.proof.scan.report import PlaceScan
from ingest.proof.scan.search_by_table import SearchByTable
from ingest.proof.scan.search_terms import SearchTerm

_QUEUED_PER_THREAD = 4
"""Listed files waiting per thread, so that a place is not listed faster than it is read."""
_UNREADABLE_LOG = "it does not tell whether columns have other names in the files, so numbers may be missed in these"


def scan_places(
    places: Sequence[Place], terms: Sequence[SearchTerm], threads: int | None = None, tables: Sequence[str] = ()
) -> list[PlaceScan]:
    """Returns the result per place. `tables`: those whose rows are not taken for rows of another one. Memory is
    independent of the number and size of files, apart from a line for each file that holds something or can't be
    read."""
    thread_count = threads or os.cpu_count() or 2
    with ThreadPoolExecutor(thread_count, thread_name_prefix="scan") as pool:
        return [_scan_place(pool, thread_count * _QUEUED_PER_THREAD, terms, place, tables) for place in places]


def _scan_place(
    pool: ThreadPoolExecutor, max_waiting: int, terms: Sequence[SearchTerm], place: Place, tables: Sequence[str]
) -> PlaceScan:
    extended_terms, unreadable_logs = with_physical_names(terms, place)
    searches = SearchByTable(extended_terms, tables)
    result = PlaceScan(searches.whole.mask(place.name))
    for log in unreadable_logs:
        result.add_unread(searches.whole.mask(log.name), _UNREADABLE_LOG)
    waiting: set[Future[PlaceScan]] = set()
    try:
        for entry in place.entries():
            waiting.add(pool.submit(EntryScan(searches, result.place, entry).run))
            if len(waiting) >= max_waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                _add(result, done)
    except Unreadable as failure:
        result.add_unread("", str(failure))
    _add(result, waiting)
    return result


def _add(result: PlaceScan, parts: Iterable[Future[PlaceScan]]) -> None:
    for part in parts:
        result.add(part.result())
