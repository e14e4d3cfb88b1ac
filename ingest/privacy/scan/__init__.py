"""The scanner: places, and needles that may be left in them → what was read, found, and could not be read.

It reads files as they lie, in every version that a store keeps, and knows neither tables nor what removes anything from
them: a proof that asked the eraser's own code would repeat its errors.
"""

from ingest.privacy.scan.bucket import Bucket
from ingest.privacy.scan.needles import Needle
from ingest.privacy.scan.places import Folder, Place
from ingest.privacy.scan.report import Report
from ingest.privacy.scan.scanner import scanned

__all__ = ["Bucket", "Folder", "Needle", "Place", "Report", "scanned"]
