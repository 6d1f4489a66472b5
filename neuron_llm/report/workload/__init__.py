"""The requests to plan for: traces, prompts, arrivals and shared prefixes."""
