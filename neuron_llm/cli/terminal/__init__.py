"""What commands share: streams, options, signals, and the settings of libraries."""
