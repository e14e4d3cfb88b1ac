"""Runs any command of `ingest` as a job: `python -m ingest.jobs.command COMMAND PIPELINE [OPTION]...`."""

from ingest import cli


def main() -> None:
    """Runs the command; exits with the code of the error that its reader can act upon."""
    cli.main()


if __name__ == "__main__":
    main()
