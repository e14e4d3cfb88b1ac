"""Queries over a lakehouse's tables: which statements may run, and by which names tables are read."""
