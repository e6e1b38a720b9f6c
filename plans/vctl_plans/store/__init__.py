"""Where etcd is spoken, and nowhere else.

`port` says what a store is, `memory` and `etcd` are stores, `gateway` reads without gRPC for
commands that must start fast. Import the module you need: `etcd` costs 150 ms, the others do not.
"""

import os

# gRPC reads this once, when it is first imported. What it would print to stderr, in the midst of a
# command's own lines, our errors say as well.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
