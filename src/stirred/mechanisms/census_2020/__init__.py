"""The products of the 2020 Census together: no mechanism, and imported by none."""
