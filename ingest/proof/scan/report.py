"""What a scan has read, found, and could not read. No value of a needle stands in any of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from ingest.proof.scan.search_terms import Needle


@dataclass(frozen=True)
class Finding:
    """`count` times this form of a needle in one part of a file, such as a column of a row group. `first`: at which
    byte of that part it begins, where its bytes have an order."""

    place: str
    file: str
    part: str
    needle: str
    form: str
    count: int = 1
    first: int | None = None


@dataclass(frozen=True, order=True)
class NotScanned:
    """What no statement can be made of. `file` is empty where it is the place as a whole."""

    place: str
    file: str
    why: str


@dataclass(frozen=True)
class KindRead:
    """Of one place and kind: how many files, how many bytes as they are stored, and how many more were made out of
    these: decompressed, decoded. Names are files of the kind `name`, whose bytes are the names' own."""

    place: str
    kind: str
    files: int
    bytes: int
    decoded_bytes: int


@dataclass(frozen=True)
class Sighting:
    """Canaries in one kind of place and format: how many there were, and which of them the scan did not find."""

    place: str
    format: str
    canaries: int
    missed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sought:
    """A needle without its value. `columns`: in which alone it counts; everywhere where there are none."""

    label: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """Of one scan. It proves something only where every canary was found."""

    needles: tuple[Sought, ...]
    places: tuple[str, ...]
    read: tuple[KindRead, ...]
    findings: tuple[Finding, ...]
    not_scanned: tuple[NotScanned, ...]
    canaries: tuple[Sighting, ...] = ()

    @property
    def clean(self) -> bool:
        return not self.findings

    @property
    def valid(self) -> bool:
        """Whether the scanner has shown that it sees what it looks for."""
        return bool(self.canaries) and not any(s.missed for s in self.canaries)


@dataclass
class Collected:
    """What comes together while one place is read. Not shared between threads: each file has one of its own."""

    place: str
    findings: dict[tuple[str, str, str, str], Finding] = field(default_factory=dict)
    not_scanned: list[NotScanned] = field(default_factory=list)
    files: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    decoded: Counter[str] = field(default_factory=Counter)

    def found(self, file: str, part: str, needle: str, form: str, first: int | None = None, count: int = 1) -> None:
        key = (file, part, needle, form)
        before = self.findings.get(key)
        if before is not None:
            first, count = before.first, before.count + count
        self.findings[key] = Finding(self.place, *key, count, first)

    def unread(self, file: str, why: str) -> None:
        self.not_scanned.append(NotScanned(self.place, file, why))

    def add(self, other: Collected) -> None:
        for f in other.findings.values():
            self.found(f.file, f.part, f.needle, f.form, f.first, f.count)
        self.not_scanned += other.not_scanned
        self.files += other.files
        self.bytes += other.bytes
        self.decoded += other.decoded

    def read(self) -> tuple[KindRead, ...]:
        kinds = sorted(self.files)
        return tuple(KindRead(self.place, k, self.files[k], self.bytes[k], self.decoded[k]) for k in kinds)


def reported(needles: Iterable[Needle], places: Iterable[Collected], canaries: Iterable[Sighting]) -> Report:
    """The places of one scan, and what it showed of its own eyes."""
    told = list(places)
    return Report(
        tuple(dict.fromkeys(Sought(n.label, n.columns) for n in needles)),
        tuple(p.place for p in told),
        tuple(kind for p in told for kind in p.read()),
        tuple(sorted((f for p in told for f in p.findings.values()), key=_by_place)),
        tuple(sorted(n for p in told for n in p.not_scanned)),
        tuple(canaries),
    )


def _by_place(finding: Finding) -> tuple[str, ...]:
    return finding.place, finding.file, finding.part, finding.needle, finding.form
