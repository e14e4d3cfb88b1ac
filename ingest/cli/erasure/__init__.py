"""Commands of erasures and their proofs."""
