"""The model of a configuration: what it is, whether it fits, and its files made ready."""
