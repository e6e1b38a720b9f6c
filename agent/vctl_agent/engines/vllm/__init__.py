"""The adapter for vLLM: `client` is what the agent uses; the rest is what it is made of."""
