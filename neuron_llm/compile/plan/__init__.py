"""What will be compiled, decided before anything is. Knows no torch."""
