"""The exact laws of swaps: enumerated on small strata for audits, and drawn from without rounding."""
