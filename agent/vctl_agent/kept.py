"""What an agent keeps in its state directory, opened as the agent before it left it."""

import fcntl
import os
from pathlib import Path
from typing import NamedTuple

from vctl_agent.artifacts.collect import Collector
from vctl_agent.artifacts.stage import ArtifactStore
from vctl_agent.engines.epochs import EpochFile
from vctl_agent.engines.suspect import Suspect
from vctl_agent.probed import Probed
from vctl_agent.registered import Registered
from vctl_agent.settings import Settings
from vctl_plans.errors import VctlError
from vctl_plans.sources import Credentials, netrc_of


class Kept(NamedTuple):
    """Artifacts, and notes of what was done with them."""

    artifacts: ArtifactStore
    collector: Collector
    registered: Registered
    probed: Probed
    suspect: Suspect
    epoch: EpochFile


def open_kept(settings: Settings) -> Kept:
    """Open all of it; what an earlier process left half done is swept away."""
    state = settings.state
    artifacts = ArtifactStore(
        state,
        settings.allowed_root,
        allowed_sources=settings.allowed_source,
        credentials=Credentials(settings.source_token_file, netrc_of(os.environ)),
    )
    kept = Kept(
        artifacts,
        Collector(artifacts),
        Registered(state / "registered.json"),
        Probed(state / "probed.json"),
        Suspect(state / "suspect.json"),
        EpochFile(state / "epoch.json"),
    )
    artifacts.open()
    kept.collector.open()
    kept.registered.open(kept.collector.lying())
    kept.probed.open()
    kept.suspect.open()
    kept.epoch.open()
    return kept


def lock_state(state: Path) -> int:
    """Take the state directory for this process; the lock ends with it.

    Raises:
        VctlError: Another agent has it.
    """
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as cause:
        os.close(fd)
        raise VctlError(
            f"{state} belongs to another agent that is running", hint="give each its own --state"
        ) from cause
    return fd
