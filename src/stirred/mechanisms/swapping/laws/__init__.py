"""What the exact laws of all members share: enumeration and counting of permutations in small strata."""
