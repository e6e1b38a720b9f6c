"""Artifacts on a node: fetched into a directory of their own, verified there, made read-only."""
