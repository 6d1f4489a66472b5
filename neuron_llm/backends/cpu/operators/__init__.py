"""The CPU operator library: C++ sources, building and loading them, and their torch operators."""
