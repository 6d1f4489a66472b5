"""Which buckets and which chunk size would cost least."""
