"""TopDown: noisy measurements over a hierarchy of areas, their best linear estimates, and records made from them."""
