"""The life of a release: plan, run, verify, bundle. The only room that writes for others to read."""
