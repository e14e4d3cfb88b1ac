"""Measurements, side by side with others: run by hand, never by the tests. Results stay out of git, in `.bench`."""

from pathlib import Path

RESULTS = Path(__file__).parents[2] / ".bench"
