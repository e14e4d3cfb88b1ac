"""Personal values are read from a file or from stdin, and no error shows them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from ingest.cli import personal
from ingest.cli.erasure import erase
from ingest.cli.lakehouse import history
from ingest.erasure.request import SubjectId
from ingest.errors import ConfigError


def given(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_subjects_come_from_stdin_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two = "member:a b@example.org\n\nmember:42\n"
    file = tmp_path / "subjects"
    file.write_text(two, encoding="utf-8")
    wanted = [SubjectId("member", "a b@example.org"), SubjectId("member", "42")]
    assert erase._subjects(None, str(file)) == wanted
    given(two, monkeypatch)
    assert erase._subjects(None, "-") == wanted
    given("member:42\n", monkeypatch)
    assert erase._subjects("-", None) == [SubjectId("member", "42")]
    assert erase._subjects("member:42", None) == [SubjectId("member", "42")]
    for text in (two, "", "anna@example.org"):
        given(text, monkeypatch)
        with pytest.raises(ConfigError) as refused:
            erase._subjects("-", None)
        assert "example.org" not in str(refused.value)
    with pytest.raises(ConfigError, match=r"exclude each other"):
        erase._subjects("-", "-")


def test_a_key_comes_from_arguments_a_file_or_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given("email=anna=1@example.org\n\n", monkeypatch)
    assert history._key(["tenant=7"], "-") == {"tenant": "7", "email": "anna=1@example.org"}
    file = tmp_path / "key"
    file.write_text("id=1\nid=2\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="given twice"):
        history._key([], str(file))
    file.write_text("anna@example.org\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="column=value") as refused:
        history._key([], str(file))
    assert "anna" not in str(refused.value)


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for file in (tmp_path / "absent", tmp_path / "binary", tmp_path):
        with pytest.raises(ConfigError, match="can't be read"):
            personal.read(str(file), "--key-file")
