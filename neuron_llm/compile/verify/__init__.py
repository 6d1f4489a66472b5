"""Compiled graphs held against a reference that shares no code with them."""
