"""Backends: how bucket graphs are compiled, and how they are loaded and run.

Each backend lives in a folder of its own with both halves; heavy imports stay inside. What every
backend shares is here: the attention function, the graph module and the padded inputs.
"""
