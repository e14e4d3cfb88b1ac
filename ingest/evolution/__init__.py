"""Types of columns without a schema, and what a table becomes when its columns change. Pure."""
