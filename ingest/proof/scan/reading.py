"""Scans one file: its name, its bytes, and the decoded content of its format."""

from __future__ import annotations

import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import BinaryIO, cast
from urllib.parse import unquote_to_bytes

import pyarrow as pa

from ingest.proof.scan.columns import matches_in
from ingest.proof.scan.compressed import COMPRESSED, DAMAGE, PIECE, decompressed
from ingest.proof.scan.kafka_segment import compressed_batches
from ingest.proof.scan.kinds import HEAD, kind_of
from ingest.proof.scan.parquet import DecodedColumn, DecodedPage, Undecoded, decode_parquet, owner_column
from ingest.proof.scan.places import PlaceEntry, Unreadable
from ingest.proof.scan.report import PlaceScan
from ingest.proof.scan.search_by_table import SearchByTable

_MAX_DEPTH = 4
_IN_MEMORY = 32 << 20
_DECODED = COMPRESSED | {"parquet", "kafka segment", "zip"}
_RAW_ONLY = {
    "unknown": "its format is not known: its bytes were searched as they are, not decoded",
    "encrypted parquet": "it is encrypted: only its bytes were searched",
}


class EntryScan:
    """The scan of one entry of a place."""

    def __init__(self, searches: SearchByTable, place: str, entry: PlaceEntry) -> None:
        self._searches = searches
        self._patterns = searches.of_file(entry.name)
        self._entry = entry
        self._file = searches.whole.mask(entry.name)
        self._kind = "unknown"
        self._owner: str | None = None
        self._result = PlaceScan(place)

    def run(self) -> PlaceScan:
        name = self._entry.name.encode("utf-8", "surrogateescape")
        self._result.files["name"] += 1
        self._search_in("its name", [name], self._result.bytes, "name")
        # A partition's folder name is percent-encoded for the file system, and again in URLs.
        once = unquote_to_bytes(name)
        for plain in {once, unquote_to_bytes(once)} - {name}:
            self._search_in("its name, decoded", [plain], self._result.decoded, "name")
        if self._entry.note is not None:
            self._note_unread(self._entry.note)
        if self._entry.open is not None:
            try:
                opened = self._entry.open()
                with opened.file:
                    if opened.metadata:
                        self._search_in("the store's metadata", [opened.metadata], self._result.bytes, "name")
                    self._scan_file(opened.file)
            except Unreadable as failure:
                self._note_unread(str(failure))
            except OSError as failure:
                self._note_unread(f"it can't be read to its end ({type(failure).__name__})")
        return self._result

    def _scan_file(self, file: BinaryIO) -> None:
        name = self._entry.name.rsplit("/", 1)[-1].split(" (version ")[0]
        head = file.read(HEAD)
        self._kind = kind_of(name, head)
        self._result.files[self._kind] += 1
        self._owner = owner_column(file) if self._kind == "parquet" and self._is_of_any_table else None
        if self._owner is not None:
            # Only the rows tell whose values they are, and all of them are decoded.
            self._patterns = self._searches.general
        file.seek(HEAD)
        self._search_in("its bytes", chain([head], _pieces(file)), self._result.bytes, self._kind)
        self._decode(self._kind, name, file, "", 0)

    @property
    def _is_of_any_table(self) -> bool:
        return bool(self._searches.searched) and self._patterns is self._searches.whole

    def _decode(self, kind: str, name: str, file: BinaryIO, within: str, depth: int) -> None:
        """Scans decoded content that the bytes of `file` don't show. `within`: prefix that names the containers it was
        taken from, such as `gzip: `; empty for the file itself."""
        file.seek(0)
        if kind in _RAW_ONLY:
            self._note_unread(within + _RAW_ONLY[kind])
        elif kind == "parquet":
            self._scan_parquet(file, within)
        elif kind == "kafka segment":
            self._scan_segment(file, within)
        elif kind == "zip":
            self._members(file, within, depth)
        elif kind in COMPRESSED:
            self._scan_stream(name.rsplit(".", 1)[0], decompressed(kind, file), f"{within}{kind}: ", depth)

    def _scan_stream(self, name: str, pieces: Iterator[bytes], within: str, depth: int) -> None:
        """Scans a stream taken from a file; it may have a format that is decoded in turn."""
        first = next(pieces, b"")
        kind = kind_of(name, first[:HEAD])
        stream = chain([first], pieces)
        if kind not in _DECODED or depth >= _MAX_DEPTH:
            self._search_in(within + "its bytes", stream, self._result.decoded, self._kind)
            if kind in _RAW_ONLY or kind in _DECODED:
                self._note_unread(within + _RAW_ONLY.get(kind, "files lie in files too deep to be decoded"))
            return
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as spooled:
            file = cast(BinaryIO, spooled)
            for piece in stream:
                file.write(piece)
            file.seek(0)
            self._search_in(within + "its bytes", _pieces(file), self._result.decoded, self._kind)
            self._decode(kind, name, file, within, depth + 1)

    def _members(self, file: BinaryIO, within: str, depth: int) -> None:
        try:
            archive = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, ValueError) as failure:
            raise Unreadable(f"{within}it is no whole zip file ({type(failure).__name__})") from failure
        for info in archive.infolist():
            part = f"{within}zip, {self._searches.whole.mask(info.filename)}: "
            self._search_in(part + "its name", [info.filename.encode(), info.comment], self._result.decoded, self._kind)
            try:
                with archive.open(info) as member:
                    self._scan_stream(info.filename.rsplit("/", 1)[-1], _pieces(cast(BinaryIO, member)), part, depth)
            except (Unreadable, zipfile.BadZipFile, RuntimeError, *DAMAGE) as failure:
                self._note_unread(f"{part}it can't be read ({type(failure).__name__})")

    def _scan_segment(self, file: BinaryIO, within: str) -> None:
        for batch in compressed_batches(file):
            part = f"{within}records compressed by {batch.codec}"
            try:
                self._search_in(part, batch.pieces, self._result.decoded, self._kind)
            except Unreadable as failure:
                self._note_unread(f"{within}the batch at byte {batch.begin}: {failure}")

    def _scan_parquet(self, file: BinaryIO, within: str) -> None:
        for part_content in decode_parquet(file, *self._by_table(within)):
            part = within + self._searches.whole.mask(part_content.part)
            if isinstance(part_content, Undecoded):
                self._note_unread(f"{part}: {part_content.why}")
            elif isinstance(part_content, DecodedPage):
                self._search_in(part, [part_content.body], self._result.decoded, self._kind)
            else:
                self._scan_column(part_content, part)

    def _by_table(self, within: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns the tables by which rows are searched, and all that are known."""
        return (self._searches.searched, self._searches.known) if self._owner and not within else ((), ())

    def _scan_column(self, column: DecodedColumn, part: str) -> None:
        def note(why: str) -> None:
            self._note_unread(f"{part}: {why}")

        self._result.decoded[self._kind] += column.leaf.values.nbytes
        try:
            search = self._searches.of_table[column.table] if column.table else self._patterns
            for label, encoding, count in matches_in(search, column.leaf, note):
                self._result.add_finding(self._file, part, label, encoding, None, count)
        except pa.ArrowException as failure:
            self._note_unread(f"{part}: its values can't be compared ({type(failure).__name__})")

    def _search_in(self, part: str, pieces: Iterable[bytes], byte_counts: Counter[str], kind: str) -> None:
        def counted() -> Iterator[bytes]:
            for piece in pieces:
                byte_counts[kind] += len(piece)
                yield piece

        def note(why: str) -> None:
            self._note_unread(f"{part}: {why}")

        for match in self._patterns.in_stream(counted(), note):
            self._result.add_finding(self._file, part, match.label, match.encoding, match.begin)

    def _note_unread(self, why: str) -> None:
        self._result.add_unread(self._file, why)


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield piece
