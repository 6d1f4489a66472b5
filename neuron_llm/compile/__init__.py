"""Config to plan to graphs to artifact."""
