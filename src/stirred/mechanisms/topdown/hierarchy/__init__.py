"""Areas and cells: schemas, counts, trees of measurements, and the best linear estimates over them."""
