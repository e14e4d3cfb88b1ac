"""Captures Kafka into bronze: `python -m ingest.jobs.capture PIPELINE [--available-now]`."""

from ingest.cli.failure import run_command
from ingest.cli.pipeline.run import job


def main() -> None:
    """Runs the job. Prints an IngestError and exits with its exit code."""
    run_command(job("capture"))


if __name__ == "__main__":
    main()
