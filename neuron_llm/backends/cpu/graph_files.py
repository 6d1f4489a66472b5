"""Names of the files of a compiled CPU graph. Knows no torch."""

GRAPH_FILE = "graph.so"
CONSTANTS_FILE = "constants.safetensors"
"""Tensors of the graph that are no weights of the checkpoint; not every graph has them."""
