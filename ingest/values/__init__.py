"""Types of column values; decodes, converts and renders the values. Pure: no session, no I/O, no clock, no
configuration."""
