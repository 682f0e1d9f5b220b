"""Files of records: one engine, and the laws by which records exchange values."""
