"""The report of a scan: what was read, found and not readable. It contains no value of a search term.

Names of fields are keys of the JSON report and of certificates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ingest.proof.scan.search_terms import SearchTerm


@dataclass(frozen=True)
class Finding:
    """`count` matches of a term in one encoding (`form`) in one part of a file, such as a column of a row group.
    `needle`: label of the term. `first`: byte offset of the first match in the part, if its bytes have an order."""

    place: str
    file: str
    part: str
    needle: str
    form: str
    count: int = 1
    first: int | None = None


@dataclass(frozen=True, order=True)
class NotScanned:
    """Content that the report says nothing about. `file` is empty for a whole place."""

    place: str
    file: str
    why: str


@dataclass(frozen=True)
class KindRead:
    """Number of files of one kind in one place, their stored bytes, and the bytes decompressed or decoded from them.
    File names count as files of the kind `name`."""

    place: str
    kind: str
    files: int
    bytes: int
    decoded_bytes: int


@dataclass(frozen=True)
class CanaryCheck:
    """The canaries of one kind of place and format: their number, and those that the scan missed."""

    place: str
    format: str
    canaries: int
    missed: tuple[str, ...] = ()


@dataclass(frozen=True)
class SearchTermLabel:
    """A search term without its value. `columns`: the only columns in which it counts; empty for everywhere."""

    label: str
    columns: tuple[str, ...]
    type: str = "text"


@dataclass(frozen=True)
class NotDecided:
    """A form of a search term that the scan can't tell from other people's values, or can't read."""

    needle: str
    form: str
    why: str


@dataclass(frozen=True)
class CollectedColumn:
    """Number of values of a personal column that were collected from the subject's events and searched for. `shared`:
    number of those that were not, because other subjects' rows have them too. `column`: as TABLE.COLUMN."""

    column: str
    values: int
    shared: int


@dataclass(frozen=True)
class Report:
    """The report of one scan. It is proof only if every canary was found. `collected`: empty if no values were
    collected, or none were asked for. `officers`: number of values that the officer has given."""

    needles: tuple[SearchTermLabel, ...]
    places: tuple[str, ...]
    read: tuple[KindRead, ...]
    findings: tuple[Finding, ...]
    not_scanned: tuple[NotScanned, ...]
    canaries: tuple[CanaryCheck, ...] = ()
    not_decided: tuple[NotDecided, ...] = ()
    collected: tuple[CollectedColumn, ...] = ()
    officers: int = 0

    @property
    def clean(self) -> bool:
        return not self.findings

    @property
    def valid(self) -> bool:
        """Returns True if the scan found all of its canaries and had some."""
        return bool(self.canaries) and not any(s.missed for s in self.canaries)


@dataclass
class PlaceScan:
    """The results of one place, or of one file of it. Not shared between threads."""

    place: str
    findings: dict[tuple[str, str, str, str], Finding] = field(default_factory=dict)
    not_scanned: list[NotScanned] = field(default_factory=list)
    files: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    decoded: Counter[str] = field(default_factory=Counter)

    def add_finding(
        self, file: str, part: str, label: str, encoding: str, first: int | None = None, count: int = 1
    ) -> None:
        key = (file, part, label, encoding)
        before = self.findings.get(key)
        if before is not None:
            first, count = before.first, before.count + count
        self.findings[key] = Finding(self.place, *key, count, first)

    def add_unread(self, file: str, reason: str) -> None:
        self.not_scanned.append(NotScanned(self.place, file, reason))

    def add(self, other: PlaceScan) -> None:
        for f in other.findings.values():
            self.add_finding(f.file, f.part, f.needle, f.form, f.first, f.count)
        self.not_scanned += other.not_scanned
        self.files += other.files
        self.bytes += other.bytes
        self.decoded += other.decoded

    def read(self) -> tuple[KindRead, ...]:
        kinds = sorted(self.files)
        return tuple(KindRead(self.place, k, self.files[k], self.bytes[k], self.decoded[k]) for k in kinds)


def build_report(terms: Iterable[SearchTerm], places: Iterable[PlaceScan], canaries: Iterable[CanaryCheck]) -> Report:
    """Returns the report over the scans of all places."""
    scans, searched = list(places), list(terms)
    return Report(
        tuple(dict.fromkeys(SearchTermLabel(n.label, _columns(n), n.value_type) for n in searched)),
        tuple(p.place for p in scans),
        tuple(kind for p in scans for kind in p.read()),
        tuple(sorted((f for p in scans for f in p.findings.values()), key=_by_place)),
        tuple(sorted(n for p in scans for n in p.not_scanned)),
        tuple(canaries),
        tuple(dict.fromkeys(one for term in searched for one in _undecided(term))),
    )


def _columns(term: SearchTerm) -> tuple[str, ...]:
    return tuple(f"{term.table}.{column}" for column in term.columns) if term.table else term.columns


def _undecided(term: SearchTerm) -> Iterator[NotDecided]:
    for form in term.forms:
        if not term.columns and not form.is_specific:
            why = f"other people's data have it by chance: counted only as a whole value of columns named {term.label}"
            yield NotDecided(term.label, form.name, why)
    if any(not isinstance(form.body, str) for form in term.forms):
        why = "records in Avro, Protobuf and Kafka's binary formats have numbers in bytes that any record may hold"
        yield NotDecided(term.label, "number in a binary record", why)
    if term.value.upper() != term.value.lower():
        why = "only hashes of the value as given, in upper and in lower case can be told"
        yield NotDecided(term.label, "hash of another case", why)


def _by_place(finding: Finding) -> tuple[str, ...]:
    return finding.place, finding.file, finding.part, finding.needle, finding.form
