"""The gateway: a program of its own on the path of every request (DESIGN sections 8 and 10).

What must stay true: nothing that the agent, etcd or the disk does can stop a request that could
be served. The request path reads plain values that one event-loop step put there, and waits for
nothing but the client and the engine.
"""
