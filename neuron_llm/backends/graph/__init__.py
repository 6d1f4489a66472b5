"""What every graph is traced from: the module, its attention, and its padded inputs."""
