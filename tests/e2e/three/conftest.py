"""One fleet of three nodes, for all tests here: each begins with whatever serves."""

from collections.abc import Iterator

import pytest

from tests.e2e.support import Fleet, a_fleet, begin_serving


@pytest.fixture(scope="package")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three nodes that serve a release."""
    with a_fleet(tmp_path_factory.mktemp("fleet"), nodes=3) as made:
        begin_serving(made, "--adapter", str(made.adapter("v1")))
        yield made


@pytest.fixture(autouse=True)
def _at_rest(fleet: Fleet) -> None:
    """Have each test begin where nothing moves, also after one that failed."""
    fleet.come_to_rest()
