"""The archive: the raw changelog in an object store, kept without limit, with what is needed to verify it.

    <prefix>/<pipeline>/objects/<topic>/<partition>/<first offset>-<part of its hash>.parquet
    <prefix>/<pipeline>/manifests/<the capture batch after which it begins>.json

An object holds records of one topic partition in offset order: the raw record and its parsed columns. It has the schema
of a bronze data file, so a restore imports it without reading it. An object counts once a manifest names it; objects of
a run that died are named by none. Manifests cover consecutive ranges of capture batches without a gap. Each lists its
objects (records, bytes, SHA-256) and the statistics that a merge needs first: rows and columns of each table.

Only an erasure changes archived objects: it rewrites those that hold erased records, with these records emptied, and
replaces their manifests. Offsets and record counts stay the same.
"""

from ingest.archive.erasing import ArchiveErasure, erase_records
from ingest.archive.layout import Damage, Layout, StoredObject
from ingest.archive.manifest import ArchivedObject, Manifest
from ingest.archive.manifest_archive import ManifestArchive
from ingest.archive.store import ObjectStore

__all__ = [
    "ArchiveErasure",
    "ArchivedObject",
    "Damage",
    "Layout",
    "Manifest",
    "ManifestArchive",
    "ObjectStore",
    "StoredObject",
    "erase_records",
]
