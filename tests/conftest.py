"""What holds for every test: hypothesis judges behaviour and never time.

On a busy machine an example may take long, and the first text strategy of a process builds a table
of all characters; neither says anything about the code.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("vctl", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("vctl")
