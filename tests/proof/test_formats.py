"""Values planted in files of every format are found, unreadable files are listed, and clean files give no findings."""

from __future__ import annotations

import bz2
import decimal
import gzip
import io
import json
import lzma
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.proof.canaries import formats
from ingest.proof.canaries.canary_encodings import canaries, number_canary
from ingest.proof.forms.encodings import IN_COLUMN
from ingest.proof.scan import Folder, SearchTerm, scan_places
from ingest.proof.scan.compressed import PIECE
from ingest.proof.scan.kinds import HEAD
from tests.proof.subject import EMAIL, NUMBER, in_file, planted, scan, seen, unread

LINE = json.dumps({"id": NUMBER, "mail": EMAIL}, ensure_ascii=False).encode()
BOTH = {("email", "as given"), ("member", IN_COLUMN)}
NOISE = os.urandom(50_000)


def parquet(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


def members(others: int = 2000) -> pa.Table:
    """Returns rows with the subject in the middle, so that no statistics name it."""
    ids = [*range(others), NUMBER, *range(10_000, 10_000 + others)]
    mails = [f"{i}@mail.example" if i != NUMBER else EMAIL for i in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "mail": mails})


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "a.json.gz": gzip.compress,
    "two.gz": lambda b: gzip.compress(NOISE) + gzip.compress(b),
    "a.bz2": bz2.compress,
    "a.xz": lzma.compress,
    "a.zst": lambda b: pa.compress(b, codec="zstd", asbytes=True),
    "two.zst": lambda b: pa.compress(NOISE, codec="zstd", asbytes=True) + pa.compress(b, codec="zstd", asbytes=True),
    "a.lz4": lambda b: pa.compress(b, codec="lz4", asbytes=True),
    "gzip in zstd": lambda b: pa.compress(gzip.compress(b), codec="zstd", asbytes=True),
    "parquet.gz": lambda b: gzip.compress(parquet(pa.table({"v": [b] * 100}), compression="zstd")),
}


@pytest.mark.parametrize("name", PACKED)
def test_compressed_files_are_read(name: str, tmp_path: Path) -> None:
    found = planted(tmp_path, {name: PACKED[name](NOISE + LINE + NOISE)})
    assert {(n, f) for part, n, f in seen(found) if part != "its bytes"} >= BOTH
    assert planted(tmp_path / "clean", {name: PACKED[name](NOISE)}).findings == {}


@pytest.mark.parametrize("name", [n for n in PACKED if "two" not in n and "parquet" not in n])
def test_truncated_file_is_listed(name: str, tmp_path: Path) -> None:
    whole = PACKED[name](NOISE)
    found = planted(tmp_path, {name: whole[: len(whole) // 2]})
    assert any("can't be read to its end" in why for _, why in unread(found)), unread(found)


def test_members_of_zip_files_are_read(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("state/a.parquet", parquet(members()))
        archive.writestr(f"{EMAIL.replace('/', '')}.txt", b"")
        archive.writestr("b.txt", LINE)
        archive.writestr("1.sst", b"\x00" + NOISE)
    found = planted(tmp_path, {"state.zip": out.getvalue()})
    assert ("zip, state/a.parquet: row group 0, column mail", "email", "as given") in seen(found)
    assert ("zip, b.txt: its bytes", "email", "as given") in seen(found)
    assert [why.split(": ")[0] for _, why in unread(found)] == ["zip, 1.sst"]


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("encoding", ["dictionary", "PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_parquet_is_decoded(codec: str, version: str, encoding: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"use_dictionary": True} if encoding == "dictionary" else {"use_dictionary": False}
    if encoding != "dictionary":
        options["column_encoding"] = {"mail": encoding}
    body = parquet(members(), compression=codec, data_page_version=version, row_group_size=3000, **options)
    found = seen(planted(tmp_path, {"a.parquet": body}))
    assert ("row group 0, column mail", "email", "as given") in found
    assert ("row group 0, column id", "member", IN_COLUMN) in found


NESTED: dict[str, pa.Array] = {
    "list": pa.array([None, [], ["x", EMAIL]]),
    "struct": pa.array([None, {"a": {"b": EMAIL}}]),
    "map value": pa.array([[("k", EMAIL)], None], pa.map_(pa.string(), pa.string())),
    "map key": pa.array([[(EMAIL, 1)], None], pa.map_(pa.string(), pa.int32())),
    "large": pa.array([EMAIL], pa.large_string()),
    "view": pa.array([EMAIL], pa.string_view()),
    "fixed": pa.array([EMAIL.encode()], pa.binary(len(EMAIL.encode()))),
    "dictionary": pa.array([EMAIL, "x", EMAIL]).dictionary_encode(),
    "list of structs": pa.array([[{"m": "x"}, {"m": EMAIL}]]),
}


@pytest.mark.parametrize("shape", NESTED)
def test_nested_values_are_found(shape: str, tmp_path: Path) -> None:
    table = pa.table({"c": NESTED[shape]})
    found = planted(tmp_path, {"a.parquet": parquet(table, compression="zstd", write_statistics=False)})
    assert any(part.startswith("row group 0, column c") and n == "email" for part, n, _ in seen(found))


NUMBERS = {
    "int32": pa.array([1, NUMBER], pa.int32()),
    "uint64": pa.array([1, NUMBER], pa.uint64()),
    "double": pa.array([1.0, float(NUMBER)]),
    "decimal": pa.array([decimal.Decimal("4711.00")], pa.decimal128(12, 2)),
    "text": pa.array([str(NUMBER), "x"]),
    "binary": pa.array([str(NUMBER).encode()]),
    "list": pa.array([[1, NUMBER]]),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_count_only_in_named_columns(kind: str, tmp_path: Path) -> None:
    named, other = pa.table({"member_id": NUMBERS[kind]}), pa.table({"amount": NUMBERS[kind]})
    assert ("member", IN_COLUMN) in in_file(planted(tmp_path / "a", {"a.parquet": parquet(named)}), "a")
    assert planted(tmp_path / "b", {"b.parquet": parquet(other)}).findings == {}
    too_small = pa.table({"member_id": pa.array([1], pa.int8())})
    assert planted(tmp_path / "c", {"c.parquet": parquet(too_small)}).findings == {}


def test_number_in_a_map_counts_under_its_key(tmp_path: Path) -> None:
    partition = pa.array([[("id", str(NUMBER)), ("day", "1")]], pa.map_(pa.string(), pa.string()))
    found = planted(tmp_path, {"a.checkpoint.parquet": parquet(pa.table({"partitionValues": partition}))})
    assert ("row group 0, column partitionValues.id", "member", IN_COLUMN) in seen(found)


def test_statistics_and_the_footer_are_read(tmp_path: Path) -> None:
    table = pa.table({"id": [NUMBER], "mail": [EMAIL]}).replace_schema_metadata({"about": EMAIL})
    found = seen(planted(tmp_path, {"a.parquet": parquet(table, compression="zstd")}))
    assert {("row group 0, statistics of mail", "email", "as given"), ("its bytes", "email", "as given")} <= found
    assert ("row group 0, statistics of id", "member", IN_COLUMN) in found


def test_unused_dictionary_entries_are_read(tmp_path: Path) -> None:
    """All rows are changed to refer to another entry; the entry stays in the file."""
    other = "o" * len(EMAIL.encode())
    body = parquet(pa.table({"mail": [other, EMAIL]}), compression="none", write_statistics=False)
    hidden = body.replace(EMAIL.encode(), other.encode())
    assert planted(tmp_path / "clean", {"a.parquet": hidden}).findings == {}
    packed = pa.table({"mail": pa.DictionaryArray.from_arrays(pa.array([0, 0, 0]), [other, EMAIL])})
    written = parquet(packed, compression="zstd", write_statistics=False)
    found = seen(planted(tmp_path / "kept", {"a.parquet": written}))
    assert ("row group 0, dictionary of mail", "email", "as given") in found


def test_adjacent_values_are_not_joined(tmp_path: Path) -> None:
    half = len(EMAIL) // 2
    table = pa.table({"mail": [EMAIL[:half], EMAIL[half:]]})
    body = parquet(table, use_dictionary=False, compression="zstd")
    assert planted(tmp_path, {"a.parquet": body}).findings == {}


def test_mapped_column_names_are_known(tmp_path: Path) -> None:
    metadata = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1f"}
    inner = {"type": "struct", "fields": [{"name": "ID", "type": "long", "nullable": True, "metadata": metadata}]}
    outer = {"name": "s", "type": {"type": "array", "elementType": inner}, "nullable": True, "metadata": {}}
    schema = json.dumps({"type": "struct", "fields": [outer]})
    commit = json.dumps({"metaData": {"schemaString": schema}}).encode()
    data = parquet(pa.table({"col-1f": [NUMBER]}))
    found = planted(tmp_path / "a", {"_delta_log/00000000000000000000.json": commit, "a.parquet": data})
    assert ("row group 0, column col-1f", "member", IN_COLUMN) in seen(found)
    checkpoint = parquet(pa.table({"metaData": [None, {"schemaString": schema}]}))
    log = "_delta_log/00000000000000000010.checkpoint.parquet"
    found = planted(tmp_path / "b", {log: checkpoint, "a.parquet": data})
    assert ("row group 0, column col-1f", "member", IN_COLUMN) in seen(found)


@pytest.mark.parametrize("border", [HEAD, HEAD + PIECE, HEAD + 2 * PIECE])
def test_value_across_a_chunk_border_is_found_once(border: int, tmp_path: Path) -> None:
    body = b" " * (border - 9) + LINE + b" " * 100
    found = planted(tmp_path, {"a.json": body})
    assert {(f.needle, f.count) for f in found.findings.values()} == {("email", 1), ("member", 1)}
    (email,) = (f for f in found.findings.values() if f.form == "as given")
    assert email.first == body.index(EMAIL.encode())


def test_names_of_files_and_folders_are_read_and_not_shown(tmp_path: Path) -> None:
    name = EMAIL.replace("/", "%2F")
    found = planted(tmp_path, {f"mail={name}/a.json": b"{}", f"id={NUMBER}/b.json": b"{}"})
    assert {(f.needle, f.part) for f in found.findings.values()} == {
        ("email", "its name, decoded"),
        ("member", "its name"),
    }


def test_value_in_a_file_name_is_masked(tmp_path: Path) -> None:
    needle = SearchTerm("email", "anna.muster@mail.example")
    (tmp_path / needle.value).mkdir()
    (tmp_path / needle.value / "a").write_bytes(b"\x00\x01")
    (found,) = scan_places([Folder(tmp_path / needle.value), Folder(tmp_path)], [needle])[1:]
    assert needle.value not in repr(found)
    assert {f.file for f in found.findings.values()} == {"‹email›/", "‹email›/a"}
    assert unread(found) == [("‹email›/a", "its format is not known: its bytes were searched as they are, not decoded")]
    (place,) = scan_places([Folder(tmp_path / needle.value)], [needle])
    assert needle.value not in repr(place)


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("a.parquet", b"PARE" + NOISE + b"PARE", "encrypted"),
        ("a.parquet", parquet(members())[:-100], "no whole Parquet file"),
        ("a.bin", b"\x00" + NOISE, "not known"),
        ("a.avro", b"Obj\x01\x04" + NOISE, "not known"),
        ("a.zip", b"PK\x03\x04" + NOISE, "no whole zip"),
        ("a.snappy", b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, 50) + b"\x10" + NOISE[:49], "can't be read"),
        ("state.delta", b"LZ4Block\x25" + struct.pack("<iii", 50, 2**30, 0) + NOISE[:50], "larger than"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_undecodable_file_is_listed_and_its_bytes_are_searched(
    name: str, body: bytes, said: str, tmp_path: Path
) -> None:
    found = planted(tmp_path, {name: body + EMAIL.encode()})
    assert any(said in why for _, why in unread(found)), unread(found)
    assert ("its bytes", "email", "as given") in seen(found)


def test_damaged_column_is_listed_and_others_are_read(tmp_path: Path) -> None:
    table = pa.table({"a": ["x" * 5000 + str(i) for i in range(50)], "mail": [EMAIL] * 50})
    body = bytearray(parquet(table, compression="zstd", use_dictionary=False, write_statistics=False))
    at = pq.ParquetFile(io.BytesIO(bytes(body))).metadata.row_group(0).column(0).data_page_offset
    body[at + 60 : at + 90] = b"\xff" * 30
    found = planted(tmp_path, {"a.parquet": bytes(body)})
    assert any("row group 0, column a: it can't be decoded" in why for _, why in unread(found)), unread(found)
    assert ("row group 0, column mail", "email", "as given") in seen(found)


def test_links_and_unreadable_files_are_listed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    assert sorted(unread(scan(tmp_path))) == [
        ("elsewhere -> /etc", "a link: what it points to is a place of its own"),
        ("pipe", "neither a file nor a folder"),
    ]
    assert unread(scan(tmp_path / "absent")) == [("", "there is no such folder, or it may not be looked into")]


def test_file_deleted_during_the_scan_is_listed(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (entry,) = Folder(tmp_path).entries()
    (tmp_path / "a").unlink()

    class Gone:
        name = "gone"

        def entries(self) -> Any:
            yield entry

    (found,) = scan_places([Gone()], [SearchTerm("email", EMAIL)])
    assert unread(found) == [("a", "it can't be opened (No such file or directory)")]


def test_the_report_counts_what_was_read(tmp_path: Path) -> None:
    body = parquet(members(10), compression="zstd")
    found = planted(tmp_path, {"a.parquet": body, "b.json": b"{}", "c/d.json": b"[1]", "empty": b""})
    read = {k.kind: (k.files, k.bytes) for k in found.read()}
    assert read == {"parquet": (1, len(body)), "text": (2, 5), "empty": (1, 0), "name": (5, 9 + 6 + 2 + 8 + 5)}
    assert {k.kind: k.decoded_bytes > 0 for k in found.read()}["parquet"]


FILES = list(formats.canary_files(canaries(), number_canary()))


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_damaged_file_never_stops_a_scan(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = data.draw(st.sampled_from([f for f in FILES if len(f.body) < 1 << 20]))
    body = bytearray(file.body)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    del body[data.draw(st.integers(len(body) // 2, len(body))) :]
    folder = tmp_path_factory.mktemp("damaged")
    (folder / file.file).parent.mkdir(exist_ok=True)
    (folder / file.file).write_bytes(bytes(body))
    found = scan(folder)
    assert sum(k.files for k in found.read() if k.kind != "name") == 1


DAY = SearchTerm("born", "1961-02-03")


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64(), pa.timestamp("us"), pa.timestamp("ms", "UTC")])
def test_dates_are_found_in_each_spelling(kind: pa.DataType, tmp_path: Path) -> None:
    days = pa.array(["1950-01-01", DAY.value, None], pa.string()).cast(pa.timestamp("s")).cast(kind)
    (tmp_path / "a.parquet").write_bytes(parquet(pa.table({"born": days, "other": days})))
    for needle, columns in ((DAY, {"born", "other"}), (SearchTerm("born", DAY.value, ("born",)), {"born"})):
        found = {f.part for f in scan(tmp_path, [needle]).findings.values() if "column" in f.part}
        assert found == {f"row group 0, column {c}" for c in columns}


@pytest.mark.parametrize(("kind", "most"), [(pa.date32(), 2**31 - 1), (pa.timestamp("us", "UTC"), 9223372036825200000)])
def test_dates_are_found_next_to_an_infinite_one(kind: pa.DataType, most: int, tmp_path: Path) -> None:
    """Postgres' "infinity" becomes a year that Python's date doesn't support."""
    physical = pa.int32() if kind == pa.date32() else pa.int64()
    day = pa.array([DAY.value]).cast(pa.timestamp("s")).cast(kind)
    born = pa.concat_arrays([day, pa.array([most], physical).cast(kind)])
    (tmp_path / "a.parquet").write_bytes(parquet(pa.table({"born": born})))
    found = scan(tmp_path, [DAY])
    parts = {f"row group 0, {part} of born" for part in ("statistics", "dictionary")}
    assert {f.part for f in found.findings.values()} == parts | {"row group 0, column born"}
    assert unread(found) == []


def test_bloom_filter_is_listed(tmp_path: Path) -> None:
    body = parquet(pa.table({"mail": [EMAIL]}), bloom_filter_options={"mail": {"ndv": 10, "fpp": 0.01}})
    assert any("Bloom filter of mail" in why for _, why in unread(planted(tmp_path, {"a.parquet": body})))


def test_log_without_column_names_is_listed(tmp_path: Path) -> None:
    found = planted(tmp_path, {"t/_delta_log/00000000000000000000.json": b'{"metaData": {"schemaString": 1'})
    assert [file for file, why in unread(found) if "other names" in why] == ["t/_delta_log/00000000000000000000.json"]
