"""Merges change events of a key into its state. Pure: DataFrame → DataFrame."""
