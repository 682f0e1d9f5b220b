"""The 2020 Census on one synthetic state: every product a plan, one ledger, and swapping beside it."""
