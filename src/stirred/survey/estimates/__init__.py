"""Survey estimates: totals, means, ratios and tables of a sample, with exact integer noise and both errors apart."""
