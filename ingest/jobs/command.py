"""Runs any command of `ingest` as a job: `python -m ingest.jobs.command COMMAND PIPELINE [OPTION]...`."""

from ingest import cli


def main() -> None:
    """Runs the command. Prints an IngestError and exits with its exit code."""
    cli.main()


if __name__ == "__main__":
    main()
