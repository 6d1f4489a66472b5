"""Graphs built into the cache: keys, processes, failures, and what the cache holds."""
