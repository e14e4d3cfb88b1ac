"""The archive: a changelog as it came, for ever, in an object store. What lies there and how it is known to be whole.

    <prefix>/<pipeline>/objects/<topic>/<partition>/<first offset>-<part of its hash>.parquet
    <prefix>/<pipeline>/manifests/<the capture batch after which it begins>.json

An object holds records of one topic partition in the order of their offsets, each as it came, and beside it what it was
read as: it is a file of bronze, and a lakehouse that was lost takes it back as it is. It counts once a manifest names
it; what a run that died has left behind is named by none. Manifests follow each other without a gap, and each says of
its objects how many records and bytes they hold, and their hash; and of its records what a merge asks first: how many
there are of each table, and with which columns.

An erasure alone changes what was archived: it writes the objects that hold such records anew, without what these said,
and renews their manifests. Offsets and numbers of records stay what they were.
"""

from ingest.archive.erasing import Erased, erased
from ingest.archive.layout import Damage, Layout, StoredObject
from ingest.archive.manifest import ArchivedObject, Manifest
from ingest.archive.manifested import Manifested
from ingest.archive.store import ObjectStore

__all__ = [
    "ArchivedObject",
    "Damage",
    "Erased",
    "Layout",
    "Manifest",
    "Manifested",
    "ObjectStore",
    "StoredObject",
    "erased",
]
