"""What is installed, what the machine has, and whether the two fit. Knows no torch.

Each probe reads a `Host` and returns findings; none of them raises because of what it finds. What
may hang or crash (an import, `neuron-ls`, opening a device) happens in a process of its own.
"""
