"""HTTP/1.1 on both sides of the gateway: llhttp parses, asyncio's protocols carry, nothing buffers.

What is allowed is llhttp's strict reading (RFC 9112): a request that two servers could read in two
ways is refused. Limits are here, since a parser has none.
"""
