"""Accuracy measures: how far a release is from the truth. Their results are confidential."""
