"""Database changelogs into lakehouse tables."""
