"""One run of a removal, as each place sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from ingest.erasure.context import ErasureContext
from ingest.erasure.erased_events import ErasedEvents
from ingest.suppression.cutoff import Cutoff


@dataclass(frozen=True)
class RemovalRun:
    """`cutoffs`: request → cutoff. `keep_hours`: how long old files are kept. `delta_places`: names of the places whose
    removal leaves old files. `delta_folders`: returns the Delta tables of all places."""

    context: ErasureContext
    cutoffs: Mapping[str, Cutoff]
    keep_hours: int
    delta_places: frozenset[str]
    delta_folders: Callable[[], list[str]]

    @cached_property
    def events(self) -> ErasedEvents:
        """Returns the events to erase, searched at the first call."""
        return ErasedEvents(self.context)
