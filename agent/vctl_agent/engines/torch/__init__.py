"""The torch reference engine: a small real transformer with LoRA and a versioned prefix cache.

It is a process of its own (`vctl-engine`) and speaks what vLLM speaks; nothing here is imported by
the agent or the gateway.
"""
