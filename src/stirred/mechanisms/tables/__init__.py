"""Protected tables: what is counted in a confidential file and published with noise, and no records."""
