"""Where the bulk work of a release runs: in this process (`local`), or on a cluster (`spark`)."""
