"""A certificate states what was read and no more, and any altered byte is detected."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ingest.cli import app
from ingest.errors import ConfigError, ProofFailed
from ingest.proof.certificate import Certificate, Erasure, issue_certificate, verify_certificate
from ingest.proof.certificate.keys import make_key_pair, public_key, signing_key
from ingest.proof.certificate.statement import canonical
from ingest.proof.scan.report import CanaryCheck, Finding, KindRead, NotScanned, Report, SearchTermLabel

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
ERASURE = Erasure("2026-17", "9f" * 32, {"shop": "0/16B3748 <&>"}, "ab" * 32)
REPORT = Report(
    needles=(SearchTermLabel("email", ()), SearchTermLabel("member", ("id",))),
    places=("/data/lakehouse", "s3://bucket/<changelogs>", "Kafka at broker:9092"),
    read=(KindRead("/data/lakehouse", "parquet", 12, 34567, 89012),),
    findings=(),
    not_scanned=(NotScanned("Kafka at broker:9092", "", "topics lie elsewhere"),),
    canaries=(CanaryCheck("files", "gzip", 44),),
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    file = tmp_path_factory.mktemp("keys") / "erasure.pem"
    return file, make_key_pair(file)


@pytest.fixture(scope="module")
def certificate(pair: tuple[Path, Path]) -> Certificate:
    return issue_certificate(ERASURE, REPORT, signing_key(pair[0]), AT)


def test_certificate_describes_the_erasure(certificate: Certificate) -> None:
    problem = certificate.content
    assert problem["request"] == "2026-17"
    assert problem["cut_offs"] == {"shop": "0/16B3748 <&>"}
    assert problem["issued_at"] == "2026-03-01T12:00:00+00:00"
    assert problem["residues"] == []
    assert problem["not_scanned"] == [{"place": "Kafka at broker:9092", "file": "", "why": "topics lie elsewhere"}]
    assert problem["places"] == ["/data/lakehouse", "s3://bucket/<changelogs>"]
    assert problem["read"][0]["files"] == 12
    assert problem["needles"] == [{"label": "email", "columns": []}, {"label": "member", "columns": ["id"]}]


def test_page_shows_the_document_and_loads_nothing(certificate: Certificate) -> None:
    page = certificate.page.decode()
    for text in (
        "2026-17",
        "9f9f",
        "abab",
        "0/16B3748 &lt;&amp;&gt;",
        "34,567",
        "topics lie elsewhere",
        "does not say",
    ):
        assert text in page
    assert "<&>" not in page
    assert "<changelogs>" not in page
    assert not any(word in page for word in ("http://", "https://", "<script", "<img", "<link", "url("))


def test_certificate_verifies_from_its_files_alone(
    certificate: Certificate, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    for file in certificate.write(tmp_path, "erasure-17"):
        known = verify_certificate(file, public_key(pair[1]))
        assert (known.genuine, known.broken, known.open) == (True, (), ())
        unknown = verify_certificate(file)
        assert unknown.genuine
        assert "whose key" in unknown.open[0]
        other = verify_certificate(file, public_key(make_key_pair(tmp_path / f"{file.suffix}.pem")))
        assert other.broken == ("it was signed with another key than the one that you gave",)
    assert verify_certificate(tmp_path / "erasure-17.json").content == certificate.content


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_altered_byte_is_detected(
    data: st.DataObject, certificate: Certificate, tmp_path_factory: pytest.TempPathFactory
) -> None:
    body = data.draw(st.sampled_from([certificate.document, certificate.page]))
    at = data.draw(st.integers(0, len(body) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != body[at]))
    changed = data.draw(
        st.sampled_from(
            [
                body[:at] + bytes([byte]) + body[at + 1 :],
                body[:at] + bytes([byte]) + body[at:],
                body[:at] + body[at + 1 :],
                body[:at],
            ]
        ).filter(lambda c: c != body)
    )
    file = tmp_path_factory.getbasetemp() / "altered"
    file.write_bytes(changed)
    assert not verify_certificate(file).genuine


def test_altered_signature_is_detected(certificate: Certificate, tmp_path: Path) -> None:
    """The last character of a base64 text has bits that decoders ignore."""
    body = certificate.page
    file = tmp_path / "page.html"
    for at in range(len(body) - 160, len(body)):
        for byte in b"ABCDwxyz0189+/=":
            if body[at] != byte:
                file.write_bytes(body[:at] + bytes([byte]) + body[at + 1 :])
                assert not verify_certificate(file).genuine


@pytest.mark.parametrize(
    ("report", "problem"),
    [
        (replace(REPORT, findings=(Finding("p", "f", "its bytes", "email", "as given"),)), "1 residues were found"),
        (replace(REPORT, canaries=()), "had none"),
        (replace(REPORT, places=("Kafka at broker:9092",)), "none of 1 places could be scanned"),
        (replace(REPORT, canaries=(CanaryCheck("files", "gzip", 44, ("canary: hex",)),)), "missed 1 canaries"),
    ],
)
def test_certificate_is_refused_without_proof(report: Report, problem: str, pair: tuple[Path, Path]) -> None:
    with pytest.raises(ProofFailed, match=problem):
        issue_certificate(ERASURE, report, signing_key(pair[0]), AT)


def test_canonical_json_is_unique() -> None:
    assert canonical({"b": [1, "ü"], "a": None}) == '{"a":null,"b":[1,"ü"]}'.encode()
    with pytest.raises(TypeError):
        canonical({"a": 1.5})


def test_key_files_are_private(tmp_path: Path) -> None:
    file = tmp_path / "a.pem"
    before = os.umask(0)
    try:
        public_file = make_key_pair(file)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert b"PRIVATE" not in public_file.read_bytes()
    with pytest.raises(ConfigError, match="already"):
        make_key_pair(file)
    file.chmod(0o640)
    with pytest.raises(ConfigError, match="others may read"):
        signing_key(file)


def test_key_inside_the_lakehouse_is_refused(tmp_path: Path) -> None:
    lakehouse = tmp_path / "lakehouse"
    lakehouse.mkdir()
    make_key_pair(lakehouse / "a.pem")
    (tmp_path / "link.pem").symlink_to(lakehouse / "a.pem")
    for file in (lakehouse / "a.pem", tmp_path / "link.pem"):
        with pytest.raises(ConfigError, match="whose erasures it certifies"):
            signing_key(file, [lakehouse])
    make_key_pair(tmp_path / "b.pem")
    assert signing_key(tmp_path / "b.pem", [lakehouse])


def test_invalid_key_is_refused(tmp_path: Path) -> None:
    other = generate_private_key(SECP256R1())
    curve = other.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for name, body, problem in (("text", b"x", "no private key"), ("curve", curve, "not of Ed25519")):
        file = tmp_path / name
        file.touch(mode=0o600)
        file.write_bytes(body)
        with pytest.raises(ConfigError, match=problem):
            signing_key(file)
        with pytest.raises(ConfigError, match="no public key"):
            public_key(file)
    with pytest.raises(ConfigError, match="can't be read"):
        signing_key(tmp_path / "absent")


def test_certificate_commands(tmp_path: Path) -> None:
    run = CliRunner().invoke
    file = tmp_path / "erasure.pem"
    assert run(app, ["certificate", "key", str(file)]).exit_code == 0
    document, page = issue_certificate(ERASURE, REPORT, signing_key(file), AT).write(tmp_path, "erasure-17")
    for one in (document, page):
        verify = ["certificate", "verify", str(one), "--public-key", f"{file}.pub"]
        result = run(app, verify)
        assert result.exit_code == 0
        assert "holds: it was signed with the key that you gave" in result.stdout
        assert json.loads(run(app, [*verify, "--json"]).stdout)["genuine"]
        one.write_bytes(one.read_bytes().replace(b"2026-17", b"2026-18"))
        result = run(app, verify)
        assert result.exit_code == 1
        assert "BROKEN" in result.stdout
    document.write_bytes(b"\xff\x00")
    assert run(app, ["certificate", "verify", str(document)]).exit_code == 1
