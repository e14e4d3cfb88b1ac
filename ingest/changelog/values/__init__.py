"""Types of column values; decodes, converts and renders the values. Pure."""
