"""Swapping of disjoint pairs of records, as agencies do it."""
