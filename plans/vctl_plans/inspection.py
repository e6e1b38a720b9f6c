"""What operators ask of all nodes at once, and what a node answers in its report.

A request is one small key under a lease: it expires, and with it the answers in the reports.
"""

import msgspec

from vctl_plans.codec import Value
from vctl_plans.phase import Component
from vctl_plans.release import Actor

SCRUB = "scrub"
"""Stands for the request of what a node found by itself, reading again what lies on its disk."""


class VerifyRequest(Value, frozen=True, kw_only=True):
    """Every node is to hash again what it serves from."""

    id: str
    service: str = ""  # empty: all services
    by: Actor = Actor()


class Checked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a node found when it hashed one artifact again."""

    request: str  # a request's id, or `SCRUB`
    service: str
    number: int
    root: str
    component: Component = Component.ADAPTER
    size_bytes: int = 0
    problem: str = ""  # what differs; empty: the bytes are those of the root

    @property
    def is_good(self) -> bool:
        """Whether the bytes are those that the root names."""
        return not self.problem

    @property
    def problem_text(self) -> str:
        """What differs, and of what: in one sentence for a person."""
        part = "" if self.component is Component.ADAPTER else f"{self.component}: "
        return f"release {self.number} of {self.service}: {part}{self.problem}"


class Checks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node's answer to one request: it is whole once it is there."""

    request: str
    found: tuple[Checked, ...] = ()  # none: the node holds nothing of the service
