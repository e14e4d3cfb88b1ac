"""Canaries: markers that a scan has to find to prove anything. They are written to places of their own."""

from ingest.proof.canaries.canary_check import check_canaries

__all__ = ["check_canaries"]
