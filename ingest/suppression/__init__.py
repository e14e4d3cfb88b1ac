"""Erased subjects: the ledger, keyed hashes, cutoffs, and which events stand before them."""
