"""Doubts about a release of swapped records, looked for in the file before anything is drawn."""
