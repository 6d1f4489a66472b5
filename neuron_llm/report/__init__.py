"""What a run cost, and what its buckets have to do with it. Knows no torch."""
