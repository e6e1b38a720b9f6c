"""What holds for every test: hypothesis judges behaviour and never time.

On a busy machine an example may take long, and the first text strategy of a process builds a table
of all characters; neither says anything about the code.
"""

import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.vllm.serving import second_vllm, stock_vllm, vllm, vllm_models, vllms_at_once

__all__ = [
    "second_vllm",
    "stock_vllm",
    "vllm",
    "vllm_models",
    "vllms_at_once",
]  # fixtures: started once, for the tests of several folders

settings.register_profile("vctl", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("vctl")

# What runs in the background of a script has Ctrl-C ignored, and all that it starts inherits it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to run where groups are not kept together: two live fleets a core are too many.

    xdist 3.8 marks a group in a test's id, and pytest 9.2 lets it no longer: unnoticed, every test
    of a group would set up its fleet in every worker.
    """
    if not session.config.getoption("loadgroup", default=False):
        return
    grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
    if any("@" not in item.nodeid for item in grouped):
        raise pytest.UsageError("pytest and pytest-xdist do not keep groups together")
