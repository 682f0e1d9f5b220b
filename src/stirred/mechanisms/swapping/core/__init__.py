"""What all swaps share: columns, strata, plan, promise and the released file."""
