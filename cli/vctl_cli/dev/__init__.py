"""A whole fleet on one machine: etcd, and for each node an engine, a gateway and an agent.

For `vctl dev up`, for `vctl demo` and for tests on real processes. The programs are started, never
imported.
"""

from vctl_cli.dev.fleet import DevFleet

__all__ = ["DevFleet"]
