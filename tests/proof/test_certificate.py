"""A certificate states what was read and no more, and any altered byte is detected."""

from __future__ import annotations

import base64
import json
import os
import stat
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ingest.cli import app
from ingest.errors import ConfigError, ProofFailed
from ingest.proof.certificate import Certificate, Erasure, issue_certificate, verify_certificate
from ingest.proof.certificate.issuing import document
from ingest.proof.certificate.keys import make_key_pair, public_key, signing_key
from ingest.proof.certificate.signature import STATEMENT, Signature, in_base64
from ingest.proof.certificate.statement import canonical
from ingest.proof.scan.report import (
    CanaryCheck,
    CollectedColumn,
    Finding,
    KindRead,
    NotDecided,
    NotScanned,
    Report,
    SearchTermLabel,
)

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
ERASURE = Erasure("2026-17", "9f" * 32, {"shop": "0/16B3748 <&>"}, "ab" * 32)
REPORT = Report(
    needles=(SearchTermLabel("email", ()), SearchTermLabel("member", ("id",), "integer")),
    places=("/data/lakehouse", "s3://bucket/<changelogs>", "Kafka at broker:9092"),
    read=(KindRead("/data/lakehouse", "parquet", 12, 34567, 89012),),
    findings=(),
    not_scanned=(NotScanned("Kafka at broker:9092", "", "topics lie elsewhere"),),
    canaries=(CanaryCheck("files", "gzip", 44),),
    not_decided=(NotDecided("email", "hash of another case", "it is not known"),),
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
    assert problem["searched"] == "by the officer's values only"
    assert problem["not_scanned"] == [{"place": "Kafka at broker:9092", "file": "", "why": "topics lie elsewhere"}]
    assert problem["places"] == ["/data/lakehouse", "s3://bucket/<changelogs>"]
    assert problem["read"][0]["files"] == 12
    assert problem["needles"] == [
        {"label": "email", "columns": [], "type": "text"},
        {"label": "member", "columns": ["id"], "type": "integer"},
    ]
    assert problem["not_decided"] == [{"needle": "email", "form": "hash of another case", "why": "it is not known"}]


def test_certificate_says_how_many_values_were_collected(pair: tuple[Path, Path]) -> None:
    columns = (CollectedColumn("public.members.mail", 3, 0), CollectedColumn("public.members.city", 0, 1))
    report = replace(REPORT, collected=columns, officers=2)
    made = issue_certificate(ERASURE, report, signing_key(pair[0]), AT)
    when = "that were collected from the subject's events when the erasure was requested"
    assert made.content["searched"] == f"by 3 values {when}, and by 2 of the officer's"
    assert made.content["collected"] == [
        {"column": "public.members.mail", "values": 3, "shared": 0},
        {"column": "public.members.city", "values": 0, "shared": 1},
    ]
    assert b"public.members.city" in made.page
    alone = issue_certificate(ERASURE, replace(report, officers=0), signing_key(pair[0]), AT)
    assert alone.content["searched"] == f"by 3 values {when}"


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
        assert (unknown.genuine, unknown.broken) == (False, ())
        assert "who signed it" in unknown.open[0]
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
    verdict = verify_certificate(file)
    assert verdict.broken
    assert (verdict.holds, verdict.open, verdict.content) == ((), (), None)


def test_altered_signature_is_detected(certificate: Certificate, tmp_path: Path) -> None:
    """The last character of a base64 text has bits that decoders ignore."""
    body = certificate.page
    file = tmp_path / "page.html"
    for at in range(len(body) - 160, len(body)):
        for byte in b"ABCDwxyz0189+/=":
            if body[at] != byte:
                file.write_bytes(body[:at] + bytes([byte]) + body[at + 1 :])
                assert verify_certificate(file).broken


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


def encodings_of_small_order() -> set[bytes]:
    """Returns the encodings of the points that 8 times themselves make the neutral one, by the curve's arithmetic."""
    p = 2**255 - 19
    d = -121665 * pow(121666, -1, p) % p

    def roots(y: int) -> list[int]:
        square = (y * y - 1) * pow(d * y * y + 1, -1, p) % p
        root = pow(square, (p + 3) // 8, p)
        return [r for r in {root, root * pow(2, (p - 1) // 4, p) % p} if r * r % p == square]

    def doubled(x: int, y: int) -> tuple[int, int]:
        product = d * x * x * y * y % p
        return 2 * x * y * pow(1 + product, -1, p) % p, (y * y + x * x) * pow(1 - product, -1, p) % p

    # The points of order 8 solve d·y⁴ + 2·y² = 1, which follows from doubling to y = 0.
    order_8 = [y for y in quartic_roots(p, d) if roots(y)]
    found = set()
    for y in {0, 1, p - 1, *order_8}:
        for x in roots(y):
            point = (x, y)
            for _ in range(3):
                point = doubled(*point)
            assert point == (0, 1)
            found |= {
                (other | sign << 255).to_bytes(32, "little")
                for other in (y, y + p)
                if other < 2**255
                for sign in (0, 1)
            }
    return found


def quartic_roots(p: int, d: int) -> list[int]:
    def root(a: int) -> list[int]:
        r = pow(a, (p + 3) // 8, p)
        return [s for one in {r, r * pow(2, (p - 1) // 4, p) % p} if one * one % p == a for s in (one, p - one)]

    squares = [(r - 1) * pow(d, -1, p) % p for r in root((1 + d) % p)]
    return [y for square in squares for y in root(square)]


def test_keys_for_which_anybody_can_sign_are_refused(certificate: Certificate, tmp_path: Path) -> None:
    weak = encodings_of_small_order()
    assert len(weak) == 14
    forged = 0
    for raw in weak:
        key = Ed25519PublicKey.from_public_bytes(raw)
        pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        (tmp_path / "weak.pub").write_bytes(pem)
        with pytest.raises(ConfigError, match="small order"):
            public_key(tmp_path / "weak.pub")
        for point in weak:
            signature = Signature(in_base64(key), base64.b64encode(point + bytes(32)).decode())
            file = tmp_path / "forged.json"
            file.write_bytes(document(certificate.content, signature))
            assert verify_certificate(file, key).broken
            with suppress(InvalidSignature):
                key.verify(point + bytes(32), STATEMENT + canonical(certificate.content))
                forged += 1
    assert forged, "OpenSSL refuses such keys itself"


def test_certificate_commands(tmp_path: Path) -> None:
    run = CliRunner().invoke
    file = tmp_path / "erasure.pem"
    assert run(app, ["certificate", "key", str(file)]).exit_code == 0
    paper, page = issue_certificate(ERASURE, REPORT, signing_key(file), AT).write(tmp_path, "erasure-17")
    for one in (paper, page):
        verify = ["certificate", "verify", str(one), "--public-key", f"{file}.pub"]
        result = run(app, verify)
        assert result.exit_code == 0
        assert "holds: it was signed with the key that you gave" in result.stdout
        assert json.loads(run(app, [*verify, "--json"]).stdout)["genuine"]
        result = run(app, verify[:3])
        assert result.exit_code == 3
        assert "NOT DECIDED: who signed it" in result.stdout
        assert "holds" not in result.stdout
        assert not json.loads(run(app, [*verify[:3], "--json"]).stdout)["genuine"]
        one.write_bytes(one.read_bytes().replace(b"2026-17", b"2026-18"))
        for altered in (verify, verify[:3]):
            result = run(app, altered)
            assert result.exit_code == 1
            assert all(line.startswith("BROKEN: ") for line in result.stdout.splitlines())
            assert "altered" in result.stdout
    paper.write_bytes(b"\xff\x00")
    assert run(app, ["certificate", "verify", str(paper)]).exit_code == 1
