"""Canaries: markers that the scanner must find, or it has proved nothing. They are planted where nothing else lies."""

from ingest.privacy.canaries.sighting import sightings

__all__ = ["sightings"]
