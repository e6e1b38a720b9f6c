"""What a node's report hands on of its gateway's own word.

An override that root has set is news: it is in the report as soon as the gateway tells of it, and
gone from it as soon as it was cleared. How many sessions hold on to a release is none: it changes
with every request, so it goes along with the reports that are written anyway, and causes none.
"""

from typing import TypedDict

import msgspec

from vctl_agent.local import GatewayState
from vctl_plans.node import NodeReport


class Told(TypedDict):
    """Fields of a report."""

    overrides: dict[str, int]
    checks_keys: bool | None


def told_by(heard: GatewayState | None) -> Told:
    """Return what of a gateway's word is news; nothing while it is away."""
    if heard is None:
        return Told(overrides={}, checks_keys=None)
    return Told(overrides=heard.overrides, checks_keys=heard.checks_keys)


def with_pins(report: NodeReport, heard: GatewayState | None) -> NodeReport:
    """Return a report that is about to be written, with how many sessions are on which release."""
    return msgspec.structs.replace(report, pins=heard.pins) if heard and heard.pins else report
