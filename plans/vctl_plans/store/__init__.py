"""Where etcd is spoken, and nowhere else.

`port` says what a store is, `memory` and `etcd` are stores, `gateway` reads without gRPC for
commands that must start fast. Import the module you need: `etcd` costs 150 ms, the others do not.
"""
