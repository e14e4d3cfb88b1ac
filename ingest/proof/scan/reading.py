"""One file, read in every way that it can be: its name, its bytes, and what these hold in its format."""

from __future__ import annotations

import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import BinaryIO, cast
from urllib.parse import unquote_to_bytes

import pyarrow as pa

from ingest.proof.scan.columns import found_in
from ingest.proof.scan.compressed import COMPRESSED, DAMAGE, PIECE, decompressed
from ingest.proof.scan.kafka_segment import compressed_batches
from ingest.proof.scan.kinds import HEAD, kind_of
from ingest.proof.scan.parquet import Column, Page, Undecoded, decoded
from ingest.proof.scan.places import Entry, Unreadable
from ingest.proof.scan.report import Collected
from ingest.proof.scan.search import Search

_DEEPEST = 4
_IN_MEMORY = 32 << 20
_SOUGHT_IN = COMPRESSED | {"parquet", "kafka segment", "zip"}
_RAW_ONLY = {
    "unknown": "its format is not known: its bytes were searched as they are, not decoded",
    "encrypted parquet": "it is encrypted: only its bytes were searched",
}


class Reading:
    """Of one entry of a place. `run` gives what was found in it, and what of it could not be read."""

    def __init__(self, search: Search, place: str, entry: Entry) -> None:
        self._search = search
        self._entry = entry
        self._file = search.masked(entry.name)
        self._kind = "unknown"
        self._collected = Collected(place)

    def run(self) -> Collected:
        name = self._entry.name.encode("utf-8", "surrogateescape")
        self._collected.files["name"] += 1
        self._searched("its name", [name], self._collected.bytes, "name")
        # The folder of a partition is encoded for the file system, and again for a URL.
        once = unquote_to_bytes(name)
        for plain in {once, unquote_to_bytes(once)} - {name}:
            self._searched("its name, decoded", [plain], self._collected.decoded, "name")
        if self._entry.note is not None:
            self._unread(self._entry.note)
        if self._entry.open is not None:
            try:
                opened = self._entry.open()
                with opened.file:
                    if opened.beside:
                        self._searched("what the store says of it", [opened.beside], self._collected.bytes, "name")
                    self._opened(opened.file)
            except Unreadable as failure:
                self._unread(str(failure))
            except OSError as failure:
                self._unread(f"it can't be read to its end ({type(failure).__name__})")
        return self._collected

    def _opened(self, file: BinaryIO) -> None:
        name = self._entry.name.rsplit("/", 1)[-1].split(" (version ")[0]
        head = file.read(HEAD)
        self._kind = kind_of(name, head)
        self._collected.files[self._kind] += 1
        self._searched("its bytes", chain([head], _pieces(file)), self._collected.bytes, self._kind)
        self._decoded(self._kind, name, file, "", 0)

    def _decoded(self, kind: str, name: str, file: BinaryIO, within: str, depth: int) -> None:
        """What the bytes of `file` don't show. `within`: what it was taken out of, such as `gzip: `; empty for the file
        itself."""
        file.seek(0)
        if kind in _RAW_ONLY:
            self._unread(within + _RAW_ONLY[kind])
        elif kind == "parquet":
            self._parquet(file, within)
        elif kind == "kafka segment":
            self._segment(file, within)
        elif kind == "zip":
            self._members(file, within, depth)
        elif kind in COMPRESSED:
            self._unpacked(name.rsplit(".", 1)[0], decompressed(kind, file), f"{within}{kind}: ", depth)

    def _unpacked(self, name: str, pieces: Iterator[bytes], within: str, depth: int) -> None:
        """A stream that came out of a file, and may be a file of some format again."""
        first = next(pieces, b"")
        kind = kind_of(name, first[:HEAD])
        stream = chain([first], pieces)
        if kind not in _SOUGHT_IN or depth >= _DEEPEST:
            self._searched(within + "its bytes", stream, self._collected.decoded, self._kind)
            if kind in _RAW_ONLY or kind in _SOUGHT_IN:
                self._unread(within + _RAW_ONLY.get(kind, "files lie in files too deep to be decoded"))
            return
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as spooled:
            file = cast(BinaryIO, spooled)
            for piece in stream:
                file.write(piece)
            file.seek(0)
            self._searched(within + "its bytes", _pieces(file), self._collected.decoded, self._kind)
            self._decoded(kind, name, file, within, depth + 1)

    def _members(self, file: BinaryIO, within: str, depth: int) -> None:
        try:
            archive = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, ValueError) as failure:
            raise Unreadable(f"{within}it is no whole zip file ({type(failure).__name__})") from failure
        for one in archive.infolist():
            part = f"{within}zip, {self._search.masked(one.filename)}: "
            self._searched(part + "its name", [one.filename.encode(), one.comment], self._collected.decoded, self._kind)
            try:
                with archive.open(one) as member:
                    self._unpacked(one.filename.rsplit("/", 1)[-1], _pieces(cast(BinaryIO, member)), part, depth)
            except (Unreadable, zipfile.BadZipFile, RuntimeError, *DAMAGE) as failure:
                self._unread(f"{part}it can't be read ({type(failure).__name__})")

    def _segment(self, file: BinaryIO, within: str) -> None:
        for batch in compressed_batches(file):
            part = f"{within}records compressed by {batch.codec}"
            try:
                self._searched(part, batch.pieces, self._collected.decoded, self._kind)
            except Unreadable as failure:
                self._unread(f"{within}the batch at byte {batch.begin}: {failure}")

    def _parquet(self, file: BinaryIO, within: str) -> None:
        for one in decoded(file):
            part = within + self._search.masked(one.part)
            if isinstance(one, Undecoded):
                self._unread(f"{part}: {one.why}")
            elif isinstance(one, Page):
                self._searched(part, [one.body], self._collected.decoded, self._kind)
            else:
                self._column(one, part)

    def _column(self, column: Column, part: str) -> None:
        self._collected.decoded[self._kind] += column.leaf.values.nbytes
        try:
            for label, form, count in found_in(self._search, column.leaf):
                self._collected.found(self._file, part, label, form, None, count)
        except pa.ArrowException as failure:
            self._unread(f"{part}: its values can't be compared ({type(failure).__name__})")

    def _searched(self, part: str, pieces: Iterable[bytes], tally: Counter[str], kind: str) -> None:
        def counted() -> Iterator[bytes]:
            for piece in pieces:
                tally[kind] += len(piece)
                yield piece

        for match in self._search.in_stream(counted()):
            self._collected.found(self._file, part, match.label, match.form, match.begin)

    def _unread(self, why: str) -> None:
        self._collected.unread(self._file, why)


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield piece
