"""Predictions against measured rows."""
