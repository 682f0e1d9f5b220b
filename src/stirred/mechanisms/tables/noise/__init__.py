"""Tables of a confidential file with exact integer noise on every declared cell."""
