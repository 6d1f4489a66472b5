"""The configuration: what may be said, what is wrong with it, and where it says so."""
