"""Suppresses the events and the child rows of erased subjects before a slice is merged."""
