"""Personal values are read from a file or from stdin, and no error shows them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from ingest.cli import personal
from ingest.cli.erasure.subject_names import named_subjects
from ingest.cli.lakehouse import history
from ingest.erasure.request import SubjectId
from ingest.errors import ConfigError


def given(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_subjects_come_from_stdin_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two = "member:a b@example.org\n\nmember:42\n"
    file = tmp_path / "subjects"
    file.write_text(two, encoding="utf-8")
    wanted = [SubjectId("member", "a b@example.org"), SubjectId("member", "42")]
    assert named_subjects(None, str(file)) == wanted
    given(two, monkeypatch)
    assert named_subjects(None, "-") == wanted
    given("member:42\n", monkeypatch)
    assert named_subjects("-", None) == [SubjectId("member", "42")]
    assert named_subjects("member:42", None) == [SubjectId("member", "42")]
    for text in (two, "", "anna@example.org"):
        given(text, monkeypatch)
        with pytest.raises(ConfigError) as refused:
            named_subjects("-", None)
        assert "example.org" not in str(refused.value)
    with pytest.raises(ConfigError, match=r"exclude each other"):
        named_subjects("-", "-")


def test_a_key_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "subjects"
    file.write_bytes('person:trail \nperson:trail\r\n{"subject": "person:a\\nb"}\nperson:c\u2028d\x85e\rf\n'.encode())
    keys = ["trail ", "trail", "a\nb", "c\u2028d\x85e\rf"]
    assert named_subjects(None, str(file)) == [SubjectId("person", key) for key in keys]
    assert named_subjects("person:trail ", None) == [SubjectId("person", "trail ")]
    given('{"subject": "person: x\\n"}\n', monkeypatch)
    assert named_subjects("-", None) == [SubjectId("person", " x\n")]
    for text in ('{"subject": 42}', '{"subject', "person\n", " person:42"):
        given(text, monkeypatch)
        with pytest.raises(ConfigError):
            named_subjects("-", None)


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
