"""What is the release's own, whatever an engine wants before an adapter's name."""

from pathlib import Path

import pytest

from tests.agent.support import SERVICE, make_releases
from vctl_agent.holdings import Held, is_offered
from vctl_agent.local import GatewayState, ReadyRelease
from vctl_plans.snapshot import Service

HELD = Held(
    is_shared=False,
    has_adapter=True,
    is_whole=True,
    is_probed=True,
    is_due=False,
    is_handed_over=False,
    is_loaded=True,
)


@pytest.mark.parametrize("prefix", ["", "base:", "s3://models/llama:"])
def test_adapter_that_a_twin_is_served_by_is_still_offered(tmp_path: Path, prefix: str) -> None:
    """Another release of the same bytes is on it: its requests would lose it."""
    release = make_releases(tmp_path, 1)[1]
    service = Service(name=SERVICE, releases={1: release})
    twin = ReadyRelease(
        service=SERVICE, number=2, digest="b3:2", model=f"{prefix}{release.engine_name}"
    )
    other = ReadyRelease(service=SERVICE, number=3, digest="b3:3", model=f"{prefix}support@0")

    def heard(*accepted: ReadyRelease) -> GatewayState:
        return GatewayState(boot_id="g", routes={}, accepted=accepted)

    assert is_offered(service, release, heard(twin, other), HELD)
    assert not is_offered(service, release, heard(other), HELD)
