"""What vctl decides: pure values in, decisions out.

Only `store` and `weights` touch the world; everything else here may not log, sleep, read a clock,
draw a random number or open anything.
"""
