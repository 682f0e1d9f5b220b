"""What the metric and the Gibbs swap share: the law of the flow table, drawn exactly, and the swap by it."""
