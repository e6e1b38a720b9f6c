"""Hypothesis on a slow or fresh machine: its first text takes over a second (Unicode tables)."""

from hypothesis import HealthCheck, settings

settings.register_profile("vctl", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("vctl")
