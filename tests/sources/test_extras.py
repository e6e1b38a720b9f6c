"""What an extra brings is asked for where it is used, and named where it is missing."""

import subprocess
import sys

import pytest

_WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
from vctl_plans import sources
from vctl_plans.errors import NotAllowed
try:
    sources.connect(sys.argv[2])
except NotAllowed as error:
    print(error.message)
"""


@pytest.mark.parametrize(
    ("module", "uri", "extra"),
    [("botocore", "s3://bucket/v1", "s3"), ("huggingface_hub", "hf://org/repo", "hf")],
)
def test_missing_extra_is_named(module: str, uri: str, extra: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, module, uri], capture_output=True, text=True, check=True
    )
    assert f"pip install 'vctl-rollout[{extra}]'" in done.stdout


def test_nothing_is_imported_that_is_not_used() -> None:
    """`vctl --help`, and an agent that reads a mount, wait for none of them."""
    script = (
        "import sys; from vctl_plans import sources; sources.connect('file:///mnt/v1');"
        "print({'httpx', 'boto3', 'botocore', 'huggingface_hub'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "set()\n" == done.stdout
