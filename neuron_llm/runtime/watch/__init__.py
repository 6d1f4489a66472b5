"""What an engine tells whoever watches it. Knows no torch."""
