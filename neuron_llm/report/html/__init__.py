"""A report as one page with pictures: no network, no script, no font. Knows no torch."""
