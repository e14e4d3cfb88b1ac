"""Dialects of Debezium's connectors: one module for each, all listed in `registry`."""
