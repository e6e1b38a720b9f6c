"""What the fleet wants of its nodes, as far as it can be read.

A route or a release that cannot be read keeps its last good value, as in the gateway: one bad write
must not take from a node what it serves. A rollout does not: what nobody can read moves nothing.
"""

from collections.abc import Mapping

import msgspec

from vctl_plans.keys import Keys
from vctl_plans.snapshot import Fleet, Service, read_services
from vctl_plans.store.port import KeyValue


class Wishes:
    """Reads the services' keys, one state after another."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._last = Fleet()
        self._problems: tuple[str, ...] = ()
        self.new_problems: tuple[str, ...] = ()  # of the last reading, not told before

    def read(self, entries: Mapping[str, KeyValue]) -> Fleet:
        """Return the fleet of a whole state under `Keys.services`."""
        fleet = read_services(self._keys, entries.values())
        self.new_problems = tuple(p for p in fleet.problems if p not in self._problems)
        self._problems = fleet.problems
        if fleet.problems:
            services = {
                name: self._completed(service, entries) for name, service in fleet.services.items()
            }
            fleet = msgspec.structs.replace(fleet, services=services)
        self._last = fleet
        return fleet

    def _completed(self, service: Service, entries: Mapping[str, KeyValue]) -> Service:
        """Return the service with what was readable before in place of what is not now."""
        before = self._last.services.get(service.name)
        if before is None:
            return service
        kept = {
            number: release
            for number, release in before.releases.items()
            if self._keys.release(service.name, number) in entries
        }
        route = service.route or (before.route if service.route_revision else None)
        return msgspec.structs.replace(service, releases=kept | service.releases, route=route)
