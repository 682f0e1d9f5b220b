"""The passes over whole columns that swaps are made of."""
