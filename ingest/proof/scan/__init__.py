"""The scanner: looks for search terms in all files of given places and reports what was read, found and not readable.

It reads files as they are stored, in every version that a store keeps. It knows neither tables nor the code that
erases: a proof by the eraser's own code would repeat its errors."""

from ingest.proof.scan.bucket import Bucket
from ingest.proof.scan.places import Folder, Place
from ingest.proof.scan.report import Report
from ingest.proof.scan.scanner import scan_places
from ingest.proof.scan.search_terms import SearchTerm

__all__ = ["Bucket", "Folder", "Place", "Report", "SearchTerm", "scan_places"]
