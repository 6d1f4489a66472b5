"""What a step of a graph takes: measured, or priced by a roofline."""
