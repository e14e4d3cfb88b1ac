"""Captures and merges in one process: `python -m ingest.jobs.run PIPELINE [--available-now]`."""

from ingest.cli.failure import run_command
from ingest.cli.pipeline.run import job


def main() -> None:
    """Runs the job; exits with the code of the error that its reader can act upon."""
    run_command(job("capture", "merge"))


if __name__ == "__main__":
    main()
