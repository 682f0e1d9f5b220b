"""What the compiled swaps share: addressed random words, cells, exchange, release order; and plain Python twins."""
