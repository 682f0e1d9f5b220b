"""Layers that hold a swap: a second stage, a response before, noise after; and how their budgets add up."""
