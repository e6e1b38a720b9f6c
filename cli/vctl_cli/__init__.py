"""What vctl says: parse, call, render."""
