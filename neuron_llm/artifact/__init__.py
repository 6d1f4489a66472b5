"""What a compile leaves and a run takes: the contract of both."""
