"""Merges bronze into silver, without capturing: spark-submit jobs/merge.py PIPELINE [--available-now]"""

from ingest.jobs.merge import main

if __name__ == "__main__":
    main()
