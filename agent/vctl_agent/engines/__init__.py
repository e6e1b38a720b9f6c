"""Engines: one port, and an adapter for each kind."""
