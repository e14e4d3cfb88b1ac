"""Proofs of an erasure, which import nothing of what erases: scan, canaries, certificate."""
