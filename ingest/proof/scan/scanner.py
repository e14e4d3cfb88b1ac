"""All files of all places, several at a time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from ingest.proof.scan.physical_names import with_physical_names
from ingest.proof.scan.places import Place, Unreadable
from ingest.proof.scan.reading import Reading
from ingest.proof.scan.report import Collected
from ingest.proof.scan.search import Search
from ingest.proof.scan.search_terms import Needle

_WAITING = 4
"""Files for each thread that are known and not read yet: a place is not listed faster than it is read."""
_SILENT = "it does not tell whether columns have other names in the files, so numbers may be missed in these"


def scanned(places: Sequence[Place], needles: Sequence[Needle], threads: int | None = None) -> list[Collected]:
    """What was read and found in each place. Memory depends on neither files nor their sizes, but for one line of the
    report for each file that holds something or can't be read."""
    at_once = threads or os.cpu_count() or 2
    with ThreadPoolExecutor(at_once, thread_name_prefix="scan") as pool:
        return [_place(pool, at_once * _WAITING, needles, place) for place in places]


def _place(pool: ThreadPoolExecutor, most: int, needles: Sequence[Needle], place: Place) -> Collected:
    known, silent = with_physical_names(needles, place)
    search = Search(known)
    whole = Collected(search.masked(place.name))
    for log in silent:
        whole.unread(search.masked(log.name), _SILENT)
    waiting: set[Future[Collected]] = set()
    try:
        for entry in place.entries():
            waiting.add(pool.submit(Reading(search, whole.place, entry).run))
            if len(waiting) >= most:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                _add(whole, done)
    except Unreadable as failure:
        whole.unread("", str(failure))
    _add(whole, waiting)
    return whole


def _add(whole: Collected, parts: Iterable[Future[Collected]]) -> None:
    for part in parts:
        whole.add(part.result())
