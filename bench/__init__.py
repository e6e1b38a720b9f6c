"""Measurements, side by side with what a user would take instead; never asserted in a test."""
