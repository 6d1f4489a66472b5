"""The CPU backend: `torch.export` and AOTInductor, one shared object per bucket."""
