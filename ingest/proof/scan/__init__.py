"""The scanner: places, and needles that may be left in them → what was read, found, and could not be read.

It reads files as they lie, in every version that a store keeps, and knows neither tables nor what removes anything from
them: a proof that asked the eraser's own code would repeat its errors.
"""

from ingest.proof.scan.bucket import Bucket
from ingest.proof.scan.places import Folder, Place
from ingest.proof.scan.report import Report
from ingest.proof.scan.scanner import scanned
from ingest.proof.scan.search_terms import Needle

__all__ = ["Bucket", "Folder", "Needle", "Place", "Report", "scanned"]
