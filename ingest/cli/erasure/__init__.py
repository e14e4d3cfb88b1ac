"""Commands for erasures and their proofs."""
