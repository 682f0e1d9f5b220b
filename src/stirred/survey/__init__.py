"""Surveys: sampling designs, settings of the survey pipeline, and what sampling does to a loss."""
