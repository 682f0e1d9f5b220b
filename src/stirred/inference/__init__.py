"""What anyone can learn from a release: correcting published tables for the mechanism that made them."""
