"""A marker that the scan writes and then has to find."""

from __future__ import annotations

from dataclasses import dataclass, field

from ingest.proof.scan.search_terms import SearchTerm


@dataclass(frozen=True)
class Canary:
    """A search term that exists nowhere else, written as `body`; the scan has to find it as `encoding`."""

    term: SearchTerm
    encoding: str
    body: bytes = field(repr=False)
