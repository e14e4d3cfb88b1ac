"""Composes a pipeline from its configuration; retries; status."""
