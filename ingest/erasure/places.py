"""The register of places that an erasure removes from, in the order of removal.

The removal, the search and the certificate name places by it: a place that a certificate has to require is added here.
Proofs don't use it: they read the pipeline's file by themselves (`ingest.proof.search`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ingest.config import Pipeline

DATA_KEYS, TOMBSTONES, QUARANTINE, TABLES, BRONZE = "data keys", "tombstones", "quarantine", "tables", "bronze"
OLD_FILES, TOPICS, ARCHIVE = "old files", "compacted topics", "archive"
SILVER, PENDING, HISTORY = "silver", "pending", "history"
"""Parts of `TABLES`, which a search counts one by one."""


@dataclass(frozen=True)
class ErasurePlace:
    """`name`: as in the ledger. `is_delta`: removal rewrites Delta tables, whose old files have to be removed after it.
    `is_used`: whether a pipeline has the place."""

    name: str
    is_delta: bool = False
    is_used: Callable[[Pipeline], bool] = lambda _: True


REGISTER = (
    ErasurePlace(DATA_KEYS, is_used=lambda pipeline: pipeline.shreds),
    # The events of bronze are needed to find the rest.
    ErasurePlace(TOMBSTONES, is_delta=True),
    ErasurePlace(QUARANTINE, is_delta=True),
    ErasurePlace(TABLES, is_delta=True),
    ErasurePlace(BRONZE, is_delta=True),
    ErasurePlace(OLD_FILES),
    # Places of other systems come last.
    ErasurePlace(TOPICS, is_used=lambda pipeline: pipeline.writes_tombstones),
    ErasurePlace(ARCHIVE, is_used=lambda pipeline: pipeline.archive is not None),
)
DELTA_PLACES = tuple(place.name for place in REGISTER if place.is_delta)


def used_places(pipeline: Pipeline) -> list[str]:
    """Returns the names of the places that a pipeline has, in the order of removal."""
    return [place.name for place in REGISTER if place.is_used(pipeline)]
