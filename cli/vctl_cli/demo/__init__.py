"""`vctl demo`: the whole story on this machine, told and measured.

oracle    what each release should answer, worked out without any cache or server
clients   ask every node all the time and keep every answer
tally     judges the answers; pure
story     the five steps
"""
