"""Bronze into silver, as a job of its own: spark-submit jobs/merge.py PIPELINE [--available-now]"""

from ingest.cli.failure import guarded
from ingest.cli.pipeline.run import job

if __name__ == "__main__":
    guarded(job("merge"))
