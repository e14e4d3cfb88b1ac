"""The loop of a pipeline: capture, slice, suppress, merge a table, commit, account."""
