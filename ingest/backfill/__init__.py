"""Bounded runs over history: windows, rebuilds, restores, proofs, row history."""
