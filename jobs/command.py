"""Runs any command of `ingest`: spark-submit jobs/command.py COMMAND PIPELINE [OPTION]..."""

from ingest.jobs.command import main

if __name__ == "__main__":
    main()
