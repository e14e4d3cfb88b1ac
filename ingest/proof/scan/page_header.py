"""Reads the sizes in the header of a Parquet page (Thrift compact protocol).

https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift (PageHeader)"""

from __future__ import annotations

from dataclasses import dataclass

_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 12
_UNCOMPRESSED, _COMPRESSED = 2, 3


@dataclass(frozen=True)
class PageHeader:
    """Sizes in bytes: of the header, and of the page before and after compression."""

    length: int
    uncompressed: int
    compressed: int


def page_header(data: bytes) -> PageHeader:
    """Returns the header at the beginning of `data`. Raises ValueError for other data and IndexError for truncated
    data."""
    reader = _CompactReader(data)
    numbers = reader.struct()
    if _UNCOMPRESSED not in numbers or _COMPRESSED not in numbers:
        raise ValueError("no header of a page")
    return PageHeader(reader.at, numbers[_UNCOMPRESSED], numbers[_COMPRESSED])


class _CompactReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def struct(self) -> dict[int, int]:
        """Returns the integer fields by number and skips the others."""
        numbers: dict[int, int] = {}
        field = 0
        while kind := self._byte():
            delta, kind = kind >> 4, kind & 15
            field = field + delta if delta else self._zigzag()
            if kind in _INTEGERS:
                numbers[field] = self._zigzag()
            else:
                self._skip(kind)
        return numbers

    def _skip(self, kind: int, in_list: bool = False) -> None:
        if kind in _BOOLEANS:
            self.at += in_list
        elif kind in _INTEGERS:
            self._varint()
        elif kind == _BYTE:
            self.at += 1
        elif kind == _DOUBLE:
            self.at += 8
        elif kind == _BINARY:
            self.at += self._varint()
        elif kind == _STRUCT:
            self.struct()
        elif kind in _LISTS:
            self._skip_list()
        else:
            raise ValueError("a field of a kind that page headers don't have")

    def _skip_list(self) -> None:
        head = self._byte()
        size = head >> 4 if head >> 4 < 15 else self._varint()
        for _ in range(size):
            self._skip(head & 15, in_list=True)

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
