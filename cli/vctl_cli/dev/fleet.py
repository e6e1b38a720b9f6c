"""`DevFleet`: starts the programs in order, waits until the fleet sees itself ready, ends them all.

What counts as ready is what a user's command would see: each node's record and report in etcd, its
engine alive, its gateway heard. Ports are the programs' own choice unless a first one is given;
a program that is started again gets the ports that it had.
"""

import fcntl
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from vctl_cli.dev.models import Models
from vctl_cli.dev.program import Program, ended
from vctl_cli.programs import command_of, etcd_command
from vctl_cli.reading import fleet_of, fleet_prefixes
from vctl_plans.errors import StoreError, VctlError
from vctl_plans.keys import Keys
from vctl_plans.snapshot import Fleet
from vctl_plans.store.gateway import GatewayReader
from vctl_plans.store.settings import StoreSettings

FLEET = "dev"
PROGRAMS = ("engine", "gateway", "agent")
READY_WITHIN_S = 90.0
END_WITHIN_S = 8.0
PORTS_PER_NODE = 10
MAX_SOCKET_BYTES = 100  # a Unix socket's path has at most 107 on Linux
_POLL_S = 0.05
_ETCD_ATTEMPTS = 3

Say = Callable[[str], None]
