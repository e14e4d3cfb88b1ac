"""The changelog algebra: how change events of a key join into its state. Pure."""
