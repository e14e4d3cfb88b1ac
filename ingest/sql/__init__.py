"""Queries over a lakehouse's tables: the statements that may run, and the names of the tables."""
