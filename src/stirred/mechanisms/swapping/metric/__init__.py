"""The metric swap (swapping theory R6 with distances)."""
