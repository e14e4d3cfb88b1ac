"""Jobs for a submitter or a scheduler: `python -m ingest.jobs.run PIPELINE`, or the files in `jobs/`."""
