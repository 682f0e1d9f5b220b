"""The Gibbs swap (swapping theory R11)."""
