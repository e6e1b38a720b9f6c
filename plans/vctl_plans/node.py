"""What a node says of itself: its record under a lease, and its report beside it.

A report counts only when its boot id is the record's: the word of an agent that died is kept for
people to read, and never taken for the present.
"""

import msgspec

from vctl_plans.capability import EngineFacts
from vctl_plans.codec import SCHEMA, Value
from vctl_plans.inspection import Checks, Collected, Drained, Hashed, Named, Reached
from vctl_plans.phase import NodePhase


class NodeRecord(Value, frozen=True, kw_only=True):
    """A node's addresses and what its engine can do; put under the agent's lease.

    Written again only when another engine was found: a start reads all records and no report.
    """

    node: str
    boot_id: str
    schema: int = SCHEMA  # the highest that the node knows
    gateway_url: str = ""
    admin_url: str = ""
    engine: str = ""
    labels: dict[str, str] = {}
    facts: EngineFacts | None = None  # None: the engine has not answered since the agent runs


class ReleaseReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One release on one node."""

    service: str
    number: int
    digest: str
    phase: NodePhase
    attempt: str = ""  # `Rollout.attempt` as the agent has seen it; a failure is final within it
    reason: str = ""
    is_permanent: bool = False  # trying again cannot help
    fetched_percent: int = 0  # of a long fetch, in steps of 25; 0: not worth a word yet
    fails_probe: bool = False  # whatever the phase: a node may have to serve on, see `fuse`
    probe: str = ""  # what was measured when it was probed, in a few words


class Unmanaged(msgspec.Struct, frozen=True):
    """An adapter that the engine lists and that is no release's: somebody else loaded it."""

    name: str
    path: str  # the directory that it was loaded from, as the engine tells it


MAX_UNMANAGED = 16
"""Of them in a report: enough to find one to adopt, small enough to write."""


class NodeReport(Value, frozen=True, kw_only=True):
    """Everything that a node observed; written when something of it changed."""

    node: str
    boot_id: str
    incarnation: str = ""  # of the engine; empty while it does not answer
    engine_since: str = ""  # when the agent first saw it so; for people, as is `at`
    at: str = ""  # when it was written, UTC by the node's own clock
    cache_epoch: int = 0  # nothing that it cached in a lower one answers any more; 0: not told
    base: str = ""  # root of the base weights that it holds; empty: those it was started with
    releases: tuple[ReleaseReport, ...] = ()
    routes: dict[str, int] = {}  # service -> the route revision that the gateway acts on
    gateway_ok: bool = False
    overrides: dict[str, int] = {}  # service -> the release that root has it served by here
    checks_keys: bool | None = None  # whether its gateway asks for API keys; None: it is not heard
    # Service that moves -> release -> sessions that its gateway saw on it lately. It causes no
    # write of its own: as of when something else did.
    pins: dict[str, dict[int, int]] = {}
    free_memory: float | None = None  # share of the engine's memory, 0 to 1; None: it does not tell
    kv_used: float | None = None  # share of its KV cache, 0 to 1, in coarse steps; None: not told
    adapters: int | None = None  # that the engine lists; None: it does not answer
    disk_used: float | None = None  # share of the room for artifacts, in coarse steps; None: unseen
    exposed: str = ""  # where the engine listens beyond loopback; empty: nowhere, or not told
    problem: str = ""  # of the engine as a whole: why it serves nothing until it is restarted
    checks: tuple[Checks, ...] = ()  # answers to requests that have not expired, and to the scrub
    hashed: tuple[Hashed, ...] = ()
    collected: tuple[Collected, ...] = ()
    reached: tuple[Reached, ...] = ()
    named: tuple[Named, ...] = ()
    drain: Drained | None = None  # None: nobody asked for it
    unmanaged: tuple[Unmanaged, ...] = ()  # by name, at most `MAX_UNMANAGED`

    def release(self, service: str, number: int) -> ReleaseReport | None:
        """Return what the node says of one release."""
        found = (r for r in self.releases if r.service == service and r.number == number)
        return next(found, None)
