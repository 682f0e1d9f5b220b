"""The tests of stirred; the folders mirror ``src/stirred``."""
