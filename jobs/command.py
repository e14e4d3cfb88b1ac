"""Any command of `ingest` as a job: spark-submit jobs/command.py COMMAND PIPELINE [OPTION]..."""

from ingest.cli import main

if __name__ == "__main__":
    main()
