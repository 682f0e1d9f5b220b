"""Mechanisms: how confidential data become a release."""
