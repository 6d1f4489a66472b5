"""The `trace` binding: each graph compiled and loaded on its own."""
