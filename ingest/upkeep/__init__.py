"""Keeps tables small: deletes old files and tombstones."""
