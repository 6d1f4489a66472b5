"""The step loop: schedule, prepare, execute, sample, update."""
