"""A workload run through the real scheduler without a model."""
