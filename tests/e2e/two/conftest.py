"""One fleet of two nodes, for all tests here: each begins with whatever serves, and ends at rest.

Its engines fail as a file says, and take a moment for each token, so that requests are under way
when something dies.
"""

from collections.abc import Iterator

import pytest

from tests.e2e.support import FAULTS, Fleet, a_fleet, begin_serving


@pytest.fixture(scope="package")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two nodes that serve a release."""
    folder = tmp_path_factory.mktemp("fleet")
    arguments = ("--fault-file", str(folder / FAULTS), "--token-delay-ms", "2")
    with a_fleet(folder, nodes=2, engine_arguments=arguments) as made:
        begin_serving(made, "--adapter", str(made.adapter("v1")))
        yield made


@pytest.fixture(autouse=True)
def _at_rest(fleet: Fleet) -> Iterator[None]:
    """Have each test begin where nothing moves, also after one that failed."""
    fleet.come_to_rest()
    yield
    (fleet.folder / FAULTS).unlink(missing_ok=True)
