"""Captures and merges in one process: `python -m ingest.jobs.run PIPELINE [--available-now]`."""

from ingest.cli.failure import run_command
from ingest.cli.pipeline.run import job


def main() -> None:
    """Runs the job. Prints an IngestError and exits with its exit code."""
    run_command(job("capture", "merge"))


if __name__ == "__main__":
    main()
