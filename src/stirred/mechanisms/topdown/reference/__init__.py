"""Schemas and budget files that are shipped ready, as TOML: nothing here is computed."""
