"""Published tables without the bias that swapping put into them, from public files alone."""
