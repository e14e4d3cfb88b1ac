"""Bronze: one append-only Delta table per source with every record as it came. Its rows, capture batches, windows, and
a summary of its history."""

from ingest.lakehouse.bronze.table import COORDINATES, Bronze, CaptureState, Offsets

__all__ = ["COORDINATES", "Bronze", "CaptureState", "Offsets"]
