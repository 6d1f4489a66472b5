"""One bucket graph as a pure function that is static throughout."""
