"""Merges bronze into silver: `python -m ingest.jobs.merge PIPELINE [--available-now]`."""

from ingest.cli.failure import run_command
from ingest.cli.pipeline.run import job


def main() -> None:
    """Runs the job. Prints an IngestError and exits with its exit code."""
    run_command(job("merge"))


if __name__ == "__main__":
    main()
