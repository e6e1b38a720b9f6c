"""What vctl says: parse, call, render."""

__version__ = "0.1.0"
"""Of the whole distribution: its metadata is made from it, and reading that would take longer."""
