"""The certificate of an erasure: what was looked at, what was found, and what it does not say; signed, and verified by
nothing but the file and a public key."""

from ingest.privacy.certificate.issuing import Certificate, issued
from ingest.privacy.certificate.statement import Erasure
from ingest.privacy.certificate.verification import Verdict, verified

__all__ = ["Certificate", "Erasure", "Verdict", "issued", "verified"]
