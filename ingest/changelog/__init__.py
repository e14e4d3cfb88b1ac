"""Reads records of a changelog as change events. Pure: no session, no I/O, no clock, no configuration."""
