"""Runs any command of `ingest` as a job: spark-submit jobs/command.py COMMAND PIPELINE [OPTION]..."""

from ingest.jobs.command import main

if __name__ == "__main__":
    main()
