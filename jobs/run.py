"""Capture and merge in one process: spark-submit jobs/run.py PIPELINE [--available-now]"""

from ingest.cli.failure import guarded
from ingest.cli.pipeline.run import job

if __name__ == "__main__":
    guarded(job("capture", "merge"))
