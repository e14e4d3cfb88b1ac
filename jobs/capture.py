"""Captures Kafka into bronze, without merging: spark-submit jobs/capture.py PIPELINE [--available-now]"""

from ingest.jobs.capture import main

if __name__ == "__main__":
    main()
