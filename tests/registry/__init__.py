"""Tests of records whose schemas are in a registry."""
