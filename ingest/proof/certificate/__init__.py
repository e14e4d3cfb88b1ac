"""The certificate of an erasure: what was looked at, what was found, and what it does not say; signed, and verified by
nothing but the file and a public key."""

from ingest.proof.certificate.issuing import Certificate, issued
from ingest.proof.certificate.statement import Erasure
from ingest.proof.certificate.verification import Verdict, verified

__all__ = ["Certificate", "Erasure", "Verdict", "issued", "verified"]
