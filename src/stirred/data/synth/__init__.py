"""Synthetic confidential files: made by us, so that nobody's data are needed to try a mechanism."""
