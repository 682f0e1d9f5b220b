"""Targeted record swapping, the method of the ONS and Eurostat known from sdcMicro."""
