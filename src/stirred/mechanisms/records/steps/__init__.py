"""Steps around a swap: a randomised response before it, a finer swap after it."""
