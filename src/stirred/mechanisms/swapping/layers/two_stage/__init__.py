"""Two stages of matching (swapping theory R13)."""
