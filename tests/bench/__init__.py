"""Benchmarks against other systems: run by hand, never by the tests. Results are stored in `.bench`, outside of git."""

from pathlib import Path

RESULTS = Path(__file__).parents[2] / ".bench"
