"""One fleet that serves an adapter and a prompt, told to an application by a hook, for all here.

Its engines fail as a file says.
"""

from collections.abc import Iterator

import pytest

from tests.e2e.prompted.support import HOOK, a_prompt, a_script
from tests.e2e.support import FAULTS, Fleet, a_fleet, begin_serving


@pytest.fixture(scope="package")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two nodes that serve an adapter and a prompt."""
    folder = tmp_path_factory.mktemp("fleet")
    hook = a_script(folder / "hook", HOOK)
    with a_fleet(
        folder,
        nodes=2,
        engine_arguments=("--fault-file", str(folder / FAULTS)),
        agent_arguments=("--hook", hook),
    ) as made:
        begin_serving(
            made, "--adapter", str(made.adapter("v1")), "--prompt", str(a_prompt(made, 1))
        )
        yield made
