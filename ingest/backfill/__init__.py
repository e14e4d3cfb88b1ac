"""Bounded runs over history: backfills, rebuilds, restores, proofs and row histories."""
