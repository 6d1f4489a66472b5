"""What commands show: tables, progress and reports as text."""
