"""The certificate of an erasure: what was scanned, what was found, and what it doesn't cover. It is signed, and can be
verified with nothing but the file and a public key."""

from ingest.proof.certificate.issuing import Certificate, issue_certificate
from ingest.proof.certificate.statement import Erasure
from ingest.proof.certificate.verification import Verdict, verify_certificate

__all__ = ["Certificate", "Erasure", "Verdict", "issue_certificate", "verify_certificate"]
