"""Fixtures: real etcd servers for tests that run `vctl` as a process."""

from tests.etcd.conftest import binary, make_server, make_store, newest, prefix, shared_servers

__all__ = ["binary", "make_server", "make_store", "newest", "prefix", "shared_servers"]
