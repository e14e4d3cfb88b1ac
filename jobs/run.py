"""Captures and merges in one process: spark-submit jobs/run.py PIPELINE [--available-now]"""

from ingest.jobs.run import main

if __name__ == "__main__":
    main()
