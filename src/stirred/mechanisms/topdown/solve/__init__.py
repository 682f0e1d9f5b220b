"""From measurements to non-negative whole counts that keep everything that is known."""
