"""The conditioned swap (swapping theory R6): promise, law, kernel, moments."""
