"""When a request may start, and which shapes a scheduler can ask for."""
