"""Applies the schema policies of a pipeline's tables to their batches."""
