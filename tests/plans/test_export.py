"""What other proxies are told: exactly the route's shares, and nothing that they cannot keep."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.builders import a_route
from vctl_plans.errors import TransitionError, VctlError
from vctl_plans.export import FORMATS, Split, envoy, haproxy, nginx, split_of
from vctl_plans.route import Hold, Override, Route, Stage

GATEWAYS = {
    1: ("http://n1:8080", "http://n2:8080"),
    2: ("http://n1:8080", "https://[fd00::2]"),
}
LOCAL = {1: ("http://127.0.0.1:1",), 2: ("http://127.0.0.1:2",)}
HALF = a_route(candidate=2, weight=12.5)


def a_split(**more: object) -> Split:
    return split_of(a_route(**more), revision=7, gateways=GATEWAYS)


def test_split_is_the_routes():
    split = split_of(HALF, revision=7, gateways=GATEWAYS)

    assert (1, 2, 12.5, 7) == (split.stable, split.candidate, split.weight, split.revision)
    assert {1: ("n1:8080", "n2:8080"), 2: ("n1:8080", "[fd00::2]:443")} == split.gateways


def test_nginx_moves_the_candidates_share_from_zero_on():
    said = nginx(split_of(HALF, revision=7, gateways=GATEWAYS))

    assert "    12.50% 2;\n    * 1;\n" in said
    assert "upstream vctl_support_2 {" in said
    assert "    server [fd00::2]:443;" in said


def test_haproxy_moves_the_candidates_share_from_zero_on():
    said = haproxy(split_of(HALF, revision=7, gateways=GATEWAYS))

    assert "use_backend vctl_support_2 if { var(txn.vctl_support_share) -m int lt 1250 }" in said
    assert "http-request set-header x-vctl-release 2" in said


def test_envoys_weights_are_the_routes():
    document = json.loads(envoy(split_of(HALF, revision=7, gateways=GATEWAYS)))
    (host,) = document["route_config"]["virtual_hosts"]
    clusters = host["routes"][0]["route"]["weighted_clusters"]["clusters"]

    assert [("vctl_support_2", 1250), ("vctl_support_1", 8750)] == [
        (each["name"], each["weight"]) for each in clusters
    ]
    assert 7 == document["metadata"]["vctl"]["route_revision"]


@pytest.mark.parametrize("form", FORMATS)
def test_route_that_does_not_move_names_one_release(form: str):
    said = FORMATS[form](a_split())

    assert "vctl_support_1" in said
    assert "vctl_support_2" not in said


def test_nothing_is_exported_that_weights_cannot_say():
    for more, word in (
        ({"overrides": (Override(group="b3:x", release=2),)}, "groups"),
        ({"hold": Hold(stage=Stage.HOLD, fence_s=1, limit_s=1)}, "barrier"),
        ({"stable": 0}, "serves no release"),
    ):
        with pytest.raises(TransitionError, match=word):
            a_split(**more)


def test_release_that_no_reachable_gateway_serves_is_named():
    with pytest.raises(VctlError, match="serves release 2") as refused:
        split_of(HALF, revision=7, gateways={1: GATEWAYS[1]})
    assert "--gateway-url" in refused.value.hint


@pytest.mark.parametrize("route", [a_route(), HALF], ids=["still", "moving"])
def test_nginx_itself_takes_it(tmp_path: Path, route: Route):
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if program is None:
        pytest.skip("nginx is not installed")
    split = split_of(route, revision=7, gateways=LOCAL)
    (tmp_path / "vctl.conf").write_text(nginx(split))
    (tmp_path / "nginx.conf").write_text(
        f"pid {tmp_path}/pid; error_log stderr;\nevents {{}}\nhttp {{\n"
        f"access_log off; include {tmp_path}/vctl.conf;\nserver {{ listen unix:{tmp_path}/s;\n"
        "location / { proxy_set_header x-vctl-release $vctl_support_release;\n"
        "proxy_pass http://$vctl_support_upstream; } }\n}\n"
    )
    said = subprocess.run(  # noqa: PLW1510  its code is looked at
        [program, "-t", "-c", str(tmp_path / "nginx.conf")], capture_output=True, text=True
    )
    assert 0 == said.returncode, said.stderr


@pytest.mark.parametrize("route", [a_route(), HALF], ids=["still", "moving"])
def test_haproxy_itself_takes_it(tmp_path: Path, route: Route):
    program = shutil.which("haproxy", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if program is None:
        pytest.skip("haproxy is not installed")
    split = split_of(route, revision=7, gateways=LOCAL)
    timeouts = "defaults\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n"
    (tmp_path / "haproxy.cfg").write_text(timeouts + haproxy(split))
    said = subprocess.run(  # noqa: PLW1510  its code is looked at
        [program, "-c", "-f", str(tmp_path / "haproxy.cfg")], capture_output=True, text=True
    )
    assert 0 == said.returncode, said.stdout + said.stderr
