"""How exposed people are: uniqueness, what columns tell, what exact tables reveal, and reconstruction."""
