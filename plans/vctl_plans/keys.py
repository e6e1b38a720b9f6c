"""The only place that builds a key (DESIGN section 4)."""

import msgspec

from vctl_plans.names import check_name

DEFAULT_PREFIX = "/vctl/v1"


class Keys(msgspec.Struct, frozen=True):
    """All keys of one fleet."""

    fleet: str
    prefix: str = DEFAULT_PREFIX

    def __post_init__(self) -> None:
        check_name(self.fleet, what="fleet")

    @property
    def root(self) -> str:
        """The fleet's own prefix, with the closing slash."""
        return f"{self.prefix}/{self.fleet}/"

    # Watched by all agents and gateways: small, and seldom written.

    @property
    def config(self) -> str:
        """Defaults and trusted keys."""
        return f"{self.root}config"

    @property
    def base(self) -> str:
        """The base weights."""
        return f"{self.root}base"

    @property
    def services(self) -> str:
        """Prefix of everything that belongs to a service."""
        return f"{self.root}services/"

    def service(self, service: str) -> str:
        """Prefix of one service."""
        return f"{self.services}{service}/"

    def spec(self, service: str) -> str:
        """The service's tenant and settings."""
        return f"{self.service(service)}spec"

    def releases(self, service: str) -> str:
        """Prefix of a service's releases."""
        return f"{self.service(service)}releases/"

    def release(self, service: str, number: int) -> str:
        """One immutable release; zero-padded, so that key order is number order."""
        return f"{self.releases(service)}{number:08d}"

    def rollout(self, service: str) -> str:
        """The service's rollout, running or last."""
        return f"{self.service(service)}rollout"

    def route(self, service: str) -> str:
        """How the service's traffic is split now."""
        return f"{self.service(service)}route"

    def peers(self, service: str) -> str:
        """The gateways that take requests of nodes which are not ready."""
        return f"{self.service(service)}peers"

    def fuse(self, service: str) -> str:
        """The nodes that may be quarantined for what serves; by the conductor, seldom."""
        return f"{self.service(service)}fuse"

    @property
    def requests(self) -> str:
        """Prefix of what operators ask of all nodes."""
        return f"{self.root}requests/"

    def request(self, request: str) -> str:
        """One request, under its asker's lease."""
        return f"{self.requests}{request}"

    # Written by nodes.

    @property
    def nodes(self) -> str:
        """Prefix of the node records, each under its agent's lease."""
        return f"{self.root}nodes/"

    def node(self, node: str) -> str:
        """One node's record."""
        return f"{self.nodes}{node}"

    @property
    def reports(self) -> str:
        """Prefix of the node reports, under no lease."""
        return f"{self.root}reports/"

    def report(self, node: str) -> str:
        """One node's report."""
        return f"{self.reports}{node}"

    # Read by the conductor and by commands.

    @property
    def conductor(self) -> str:
        """The election; its create_revision is the fencing token."""
        return f"{self.root}conductor"

    def progress(self, service: str) -> str:
        """Elapsed time of the current phase."""
        return f"{self.root}progress/{service}"

    def plan(self, digest: str) -> str:
        """An immutable plan."""
        return f"{self.root}plans/{digest}"

    def roster(self, digest: str) -> str:
        """An immutable list of the nodes that a rollout counts."""
        return f"{self.root}rosters/{digest}"

    @property
    def histories(self) -> str:
        """The decisions of all services."""
        return f"{self.root}history/"

    def history(self, service: str) -> str:
        """Prefix of the decisions of all of a service's rollouts."""
        return f"{self.histories}{service}/"

    def rollout_history(self, service: str, rollout: str) -> str:
        """Prefix of the decisions of one rollout."""
        return f"{self.history(service)}{rollout}/"

    def decision(self, service: str, rollout: str, seq: int) -> str:
        """One decision."""
        return f"{self.rollout_history(service, rollout)}{seq:06d}"

    def archive(self, service: str, rollout: str) -> str:
        """A rollout as it was when another replaced it."""
        return f"{self.rollout_history(service, rollout)}end"

    @property
    def statistics(self) -> str:
        """Prefix of what the nodes' gateways counted, written only while a rollout watches."""
        return f"{self.root}statistics/"

    def statistics_of(self, node: str) -> str:
        """What one node's gateway counted."""
        return f"{self.statistics}{node}"

    def groups(self, digest: str) -> str:
        """Immutable groups of requests."""
        return f"{self.root}groups/{digest}"

    def golden(self, digest: str) -> str:
        """Immutable golden prompts, read once by each agent that asks them."""
        return f"{self.root}golden/{digest}"

    @property
    def summary(self) -> str:
        """What `status` shows first of a large fleet, by the conductor."""
        return f"{self.root}summary"

    @property
    def alerts(self) -> str:
        """Prefix of the alerts that are not sent yet: written with a decision, deleted once sent.

        Only the conductor watches it.
        """
        return f"{self.root}alerts/"

    def alert(self, alert: str) -> str:
        """One alert."""
        return f"{self.alerts}{alert}"
