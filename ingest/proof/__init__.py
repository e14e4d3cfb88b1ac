"""Proofs of an erasure: scan, canaries, certificate. They import no code that erases."""
