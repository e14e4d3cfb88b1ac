"""Erasures: requests, the search for what belongs to a subject, and its removal place by place."""
