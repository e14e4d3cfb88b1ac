"""Erasures: requests, the search for a subject's rows and events, and their removal place by place."""
