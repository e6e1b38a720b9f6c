"""Fresh seeds for each run of the tests.

VCTL_SIM_SEED repeats a run, VCTL_SIM_HISTORIES makes it longer.
"""

import os
import secrets

import pytest

HISTORIES = 400
"""Of a run of the tests; CI adds `make sim` with more."""

_VARIABLE = "VCTL_SIM_SEED"


def _base_seed() -> int:
    """Return the base seed: the same in all workers, which inherit it."""
    if _VARIABLE not in os.environ:
        os.environ[_VARIABLE] = str(secrets.randbelow(2**40))
    return int(os.environ[_VARIABLE])


_BASE = _base_seed()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how the same histories are run again."""
    terminalreporter.write_line(f"simulated histories began with {_VARIABLE}={_BASE}")


@pytest.fixture(scope="session")
def sim_seeds() -> range:
    """Return the seeds of this run."""
    return range(_BASE, _BASE + int(os.environ.get("VCTL_SIM_HISTORIES", HISTORIES)))
