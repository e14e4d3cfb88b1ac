"""Jobs that a submitter or a scheduler starts: `python -m ingest.jobs.run PIPELINE`, or the files of `jobs/`."""
