"""What the last run did: its log, its padding and what that cost."""
