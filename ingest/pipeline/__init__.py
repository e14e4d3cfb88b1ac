"""A pipeline composed from its configuration, its retries and its status."""
