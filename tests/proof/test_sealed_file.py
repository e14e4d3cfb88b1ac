"""The values that were collected of a subject can be read only with their file's own key, and are gone without it."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ingest.errors import ConfigError, StorageRefused
from ingest.proof.needles.collected import CollectedNeedles, CollectedValue
from ingest.proof.needles.sealed_file import SealedFile, destroy_older

MAIL = "anna.before@mail.example"
NEEDLES = CollectedNeedles(
    (CollectedValue("public.members", "mail", "string", f'{{"v":"{MAIL}"}}'),), (("public.members.iban", "encrypted"),)
)


def written(folder: Path, request: str = "r1", pipeline: str = "shop") -> SealedFile:
    file = SealedFile(str(folder / "keys.needles"), pipeline, request)
    file.write(NEEDLES.to_bytes())
    return file


def test_values_are_encrypted_and_readable_by_their_owner_alone(tmp_path: Path) -> None:
    file = written(tmp_path)
    assert CollectedNeedles.from_bytes(file.read() or b"") == NEEDLES
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in files} == {"r1.sealed", "r1.key"}
    assert not any(MAIL.encode() in path.read_bytes() for path in files)
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_dir()} == {0o700}
    assert MAIL not in repr(NEEDLES)
    file.path.chmod(0o640)
    with pytest.raises(ConfigError, match="others may read"):
        file.read()


def test_file_of_another_request_or_an_altered_one_is_refused(tmp_path: Path) -> None:
    file, other = written(tmp_path), written(tmp_path, "r2")
    body = file.path.read_bytes()
    key = file.path.with_suffix(".key").read_bytes()
    other.path.write_bytes(body)
    other.path.with_suffix(".key").write_bytes(key)
    with pytest.raises(ConfigError, match="another request's"):
        other.read()
    for at in (0, len(body) - 1):
        file.path.write_bytes(body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])
        with pytest.raises(ConfigError, match="r1"):
            file.read()
    file.path.write_bytes(body[:-1])
    with pytest.raises(ConfigError, match="altered"):
        file.read()
    file.path.write_bytes(body)
    file.path.with_suffix(".key").unlink()
    with pytest.raises(ConfigError, match="lost its key"):
        file.read()


def test_destroyed_values_can_not_be_read_from_a_copy_of_the_file(tmp_path: Path) -> None:
    file = written(tmp_path)
    first = file.path.read_bytes()
    file.write(NEEDLES.to_bytes())
    assert file.path.read_bytes() != first, "no nonce is used twice"
    copy = file.path.read_bytes()
    assert (file.destroy(), file.destroy(), file.read()) == (True, False, None)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    file.write(b"")
    file.path.write_bytes(copy)
    with pytest.raises(ConfigError):
        file.read()


def test_outdated_values_of_the_pipeline_are_destroyed(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    old, new, other = written(tmp_path), written(tmp_path, "r2"), written(tmp_path, "r1", "another")
    for file in (old, other):
        month_ago = (now - timedelta(days=31)).timestamp()
        os.utime(file.path.with_suffix(".key"), (month_ago, month_ago))
    # Values that were added later don't keep it.
    old.write(NEEDLES.to_bytes())
    folder = str(tmp_path / "keys.needles")
    assert destroy_older(folder, "shop", now - timedelta(days=30)) == 1
    assert (old.read(), new.read() is None, other.read() is None) == (None, False, False)
    assert destroy_older(str(tmp_path / "absent"), "shop", now) == 0


def test_folder_that_can_not_be_written_is_told_without_a_value(tmp_path: Path) -> None:
    (tmp_path / "keys.needles").write_text("a file")
    with pytest.raises(StorageRefused, match="needle_days: 0") as refused:
        written(tmp_path)
    assert MAIL not in str(refused.value)
    with pytest.raises(ConfigError, match="version"):
        CollectedNeedles.from_bytes(b'{"mail": "x"}')
