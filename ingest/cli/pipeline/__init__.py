"""Commands that run and configure pipelines."""
