"""A service's split as the configuration of a proxy that is not ours: pure, values in, text out.

Whoever has a gateway of their own in front lets it choose by weight, names the choice in
``x-vctl-release``, and sends to nodes that serve it; vctl's gateway there serves exactly that or
refuses (DESIGN section 8). A session is kept by a hash of its key, and since the candidate's share
begins at 0, who has moved never moves back while the weight grows.

What a proxy cannot express (groups that have a release of their own, a barrier) is refused, not
left out.
"""

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import msgspec

from vctl_plans.errors import TransitionError, VctlError
from vctl_plans.route import Route
from vctl_plans.routing import RELEASE_HEADER, SESSION_HEADER


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """Who serves what share of a service."""

    service: str
    revision: int  # of the route
    stable: int
    candidate: int  # 0: nothing moves
    weight: float  # percent on the candidate
    gateways: dict[int, tuple[str, ...]]  # release -> host:port of gateways that serve it

    @property
    def releases(self) -> tuple[int, ...]:
        """The releases that are served, the candidate first."""
        return tuple(n for n in (self.candidate, self.stable) if n)


def split_of(route: Route, *, revision: int, gateways: Mapping[int, tuple[str, ...]]) -> Split:
    """Return the split of a route.

    Args:
        route: The route.
        revision: Its revision.
        gateways: URLs of the gateways on nodes where a release is ready, by release.

    Raises:
        TransitionError: The route holds what no other proxy can do, or serves nothing.
        VctlError: No gateway is known that serves what is routed.
    """
    if not route.stable:
        raise TransitionError(f"service {route.service} serves no release yet")
    if route.overrides:
        raise TransitionError(
            f"groups of {route.service} have a release of their own, which no weight can say",
            hint="let vctl's gateways choose: send to them without x-vctl-release",
        )
    if route.hold:
        raise TransitionError(
            f"{route.service} is behind a barrier now, which only vctl's gateways know",
            hint="export it again when the rollout has gone on, or roll out with `session`",
        )
    served = {n: tuple(map(_place, gateways.get(n, ()))) for n in sorted(route.default)}
    missing = ", ".join(str(number) for number, places in served.items() if not places)
    if missing:
        raise VctlError(
            f"no node with a reachable gateway serves release {missing} of {route.service}",
            hint="give vctl-agent --gateway-url on the nodes; see vctl status",
        )
    return Split(
        service=route.service,
        revision=revision,
        stable=route.stable,
        candidate=route.candidate,
        weight=route.weight,
        gateways=served,
    )


def _place(url: str) -> str:
    """Return host and port of a gateway's URL."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _name(split: Split) -> str:
    """Return the service's name as an identifier that every format takes."""
    return "".join(char if char.isalnum() else "_" for char in split.service)


def _comment(split: Split, mark: str) -> list[str]:
    share = f"{split.weight:g} % on release {split.candidate}, " if split.candidate else ""
    stands = f"{share}the rest on release {split.stable}"
    return [
        f"{mark} {split.service} at route revision {split.revision}: {stands}",
        f"{mark} written by `vctl route export`: write it again when the route changes",
    ]


def nginx(split: Split) -> str:
    """Return blocks for nginx's ``http`` context, to be included (ngx_http_split_clients_module).

    A server then sends with ``proxy_pass http://$vctl_NAME_upstream;`` and
    ``proxy_set_header x-vctl-release $vctl_NAME_release;``.
    """
    name = _name(split)
    session = SESSION_HEADER.replace("-", "_")
    lines = _comment(split, "#")
    lines += [f"map $http_{session} $vctl_{name}_key {{", '    "" $request_id;']
    lines += [f"    default $http_{session};", "}"]
    lines += [f"split_clients $vctl_{name}_key $vctl_{name}_release {{"]
    if split.candidate and split.weight:
        lines.append(f"    {split.weight:.2f}% {split.candidate};")
    lines += [f"    * {split.stable};", "}"]
    lines += [f"map $vctl_{name}_release $vctl_{name}_upstream {{"]
    lines += [f"    {number} vctl_{name}_{number};" for number in split.releases] + ["}"]
    for number in split.releases:
        lines += [f"upstream vctl_{name}_{number} {{", "    keepalive 32;"]
        lines += [f"    server {place};" for place in split.gateways[number]] + ["}"]
    return "\n".join(lines) + "\n"


def haproxy(split: Split) -> str:
    """Return a frontend's rules, in a defaults-free ``backend`` each, for HAProxy 2.4 and newer.

    A frontend then has ``use_backend vctl_NAME``-like rules of its own; the first section is a
    backend that routes by the release it chose.
    """
    name = _name(split)
    bound = round(split.weight * 100)
    key = f"var(txn.vctl_{name}_key),xxh32,mod(10000)"
    lines = [*_comment(split, "#"), f"frontend vctl_{name}", "    mode http"]
    lines += ["    bind 127.0.0.1:8000", "    unique-id-format %[uuid()]"]
    session = f"req.hdr({SESSION_HEADER})"
    lines += [
        f"    http-request set-var(txn.vctl_{name}_key) unique-id",
        f"    http-request set-var(txn.vctl_{name}_key) {session} if {{ {session} -m found }}",
        f"    http-request set-var(txn.vctl_{name}_share) {key}",
    ]
    if split.candidate and bound:
        moved = f"{{ var(txn.vctl_{name}_share) -m int lt {bound} }}"
        lines.append(f"    use_backend vctl_{name}_{split.candidate} if {moved}")
    lines.append(f"    default_backend vctl_{name}_{split.stable}")
    for number in split.releases:
        lines += [f"backend vctl_{name}_{number}", "    mode http", "    balance leastconn"]
        lines.append(f"    http-request set-header {RELEASE_HEADER} {number}")
        lines += [
            f"    server n{place} {at} check"
            for place, at in enumerate(split.gateways[number], start=1)
        ]
    return "\n".join(lines) + "\n"


def envoy(split: Split) -> str:
    """Return a route configuration and clusters for Envoy's v3 API, as JSON (which is YAML too)."""
    name = _name(split)
    share = round(split.weight * 100) if split.candidate else 0
    weights = {split.candidate: share, split.stable: 10_000 - share}
    chosen = [
        {
            "name": f"vctl_{name}_{number}",
            "weight": weights[number],
            "request_headers_to_add": [
                {
                    "header": {"key": RELEASE_HEADER, "value": str(number)},
                    "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
                }
            ],
        }
        for number in split.releases
    ]
    route = {
        "match": {"prefix": "/v1/"},
        "route": {
            "weighted_clusters": {"clusters": chosen, "use_hash_policy": True},
            "hash_policy": [{"header": {"header_name": SESSION_HEADER}}],
            "timeout": "0s",
        },
    }
    document = {
        "metadata": {"vctl": {"service": split.service, "route_revision": split.revision}},
        "route_config": {
            "name": f"vctl_{name}",
            "virtual_hosts": [{"name": name, "domains": ["*"], "routes": [route]}],
        },
        "clusters": [_cluster(f"vctl_{name}_{n}", split.gateways[n]) for n in split.releases],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _cluster(name: str, places: tuple[str, ...]) -> dict[str, object]:
    endpoints = []
    for place in places:
        host, _, port = place.rpartition(":")
        address = {"address": host.strip("[]"), "port_value": int(port)}
        endpoints.append({"endpoint": {"address": {"socket_address": address}}})
    return {
        "name": name,
        "type": "STRICT_DNS",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
    }


FORMATS: dict[str, Callable[[Split], str]] = {
    "nginx": nginx,
    "haproxy": haproxy,
    "envoy": envoy,
}
"""By name: what writes a split."""
