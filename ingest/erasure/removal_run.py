"""One run of a removal, as each place sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ingest.erasure.context import ErasureContext
from ingest.erasure.erased_events import ErasedEvents
from ingest.lakehouse.catalog import CatalogEntry
from ingest.loop.table_faults import FAULTS, FaultyTables
from ingest.suppression.cutoff import Cutoff


@dataclass(frozen=True)
class RemovalRun:
    """`cutoffs`: request → cutoff. `keep_hours`: how long old files are kept. `delta_places`: names of the places whose
    removal leaves old files. `delta_folders`: returns the Delta tables of all places. `faulty`: the tables that could
    not be worked on: their events stay in all places, so that the next run finds what they lead to."""

    context: ErasureContext
    cutoffs: Mapping[str, Cutoff]
    keep_hours: int
    delta_places: frozenset[str]
    delta_folders: Callable[[], list[str]]
    faulty: FaultyTables = field(default_factory=lambda: FaultyTables("erased from"))

    @cached_property
    def events(self) -> ErasedEvents:
        """Returns the events to erase, searched at the first call."""
        return ErasedEvents(self.context, self.faulty)

    def for_each_table(self, work: Callable[[CatalogEntry], int]) -> int:
        """Returns the sum of what `work` returns for each subject table; one that fails is `faulty`."""
        total = 0
        for entry in self.context.subject_tables:
            try:
                total += work(entry)
            except FAULTS as error:
                self.faulty.failed(entry.table_schema.table, error)
        return total
