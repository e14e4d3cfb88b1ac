"""Canaries: markers that the scanner must find, or it has proved nothing. They are planted where nothing else lies."""

from ingest.proof.canaries.canary_check import sightings

__all__ = ["sightings"]
