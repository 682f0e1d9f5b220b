"""Cell-key perturbation: tables of counts and sums whose noise is looked up by the keys of their records."""
