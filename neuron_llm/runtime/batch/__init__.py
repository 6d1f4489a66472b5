"""A batch job: lines in, records out, and going on after a stop."""
