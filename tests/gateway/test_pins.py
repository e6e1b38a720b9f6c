"""Pins: what the gateway returned keeps a session on its release; what it did not make does not."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as over
from hypothesis import strategies as st

from tests.gateway.support import Bench, a_route, eventually, serving
from vctl_agent.gateway.fleetkey import FleetKey
from vctl_agent.gateway.pins import COOKIE, MAX_CHARS, Pin, Pins, given, own_id
from vctl_plans.route import Consistency, pinned, returned, settled, shifted
from vctl_plans.routing import SESSION_HEADER

KEY = FleetKey([b"k" * 32])
MOVING = pinned(a_route(1, candidate=2, weight=50.0))


def made(key: FleetKey = KEY, fleet: str = "dev", digest: str = "d") -> Pins:
    return Pins(key, fleet=fleet, digest=lambda service, number: f"{digest}{service}{number}")


def brought(text: str) -> dict[str, str]:
    return {SESSION_HEADER: text}


@over(st.integers(1, 10**7), st.text(max_size=100))
def test_what_was_made_is_read(release: int, key: str):
    pin = Pin(release, key)
    text = made().make("support", pin)

    assert len(text) <= MAX_CHARS
    found = made().read("support", brought(text))
    assert found is not None
    assert release == found.release


def test_key_of_any_length_makes_a_short_pin_that_keeps_its_session_together():
    one, other = (made().make("support", Pin(1, "x" * 10_000 + end)) for end in "ab")

    assert len(one) <= MAX_CHARS
    assert one != other


@pytest.mark.parametrize(
    "reader",
    [
        made(FleetKey([b"l" * 32])),
        made(fleet="other"),
        made(digest="another build of "),
    ],
    ids=["another key", "another fleet", "another release of that number"],
)
def test_pin_of_others_is_none(reader: Pins):
    text = made().make("support", Pin(1, "k"))

    assert reader.read("support", brought(text)) is None
    assert made().read("other-service", brought(text)) is None


@over(st.integers(0, 200), st.characters())
def test_pin_that_was_changed_is_none(at: int, char: str):
    text = made().make("support", Pin(12, "conversation:abc"))
    at %= len(text)
    changed = text[:at] + char + text[at + 1 :]
    if changed != text:
        assert made().read("support", brought(changed)) is None


@over(st.text(max_size=600))
def test_nonsense_is_none(text: str):
    assert made().read("support", brought(f"p1.{text}")) is None
    assert made().read("support", {"cookie": f"{COOKIE}=p1.{text}"}) is None


def test_changed_fleet_key_still_reads_what_the_old_one_signed():
    text = made().make("support", Pin(1, "k"))
    both = made(FleetKey([b"n" * 32, b"k" * 32]))

    assert Pin(1, "k") == both.read("support", brought(text))


def test_session_id_of_the_clients_own_is_no_pin():
    assert ("", "mine") == (given(brought("mine")), own_id(brought("mine")))
    text = made().make("support", Pin(1, "k"))
    assert (text, "") == (given(brought(text)), own_id(brought(text)))
    assert text == given({"cookie": f"a=b; {COOKIE}={text}; c=d"})


def test_only_a_route_that_moves_holds_sessions():
    assert (1, 2) == MOVING.pinnable
    assert () == pinned(a_route(1)).pinnable
    assert () == settled(MOVING, 2, retained=(1,)).pinnable
    assert () == returned(MOVING, 1, revoke=(2,)).pinnable
    assert (1, 2) == shifted(MOVING, 2, 75.0).pinnable


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Bench]:
    async with serving(tmp_path, has_access_log=False, fleet_key=KEY) as bench:
        yield bench


async def ask(gateway: Bench, text: str, **headers: str) -> tuple[int, str, str]:
    """Return status, release and pin of an answer to a conversation that begins with *text*."""
    messages = [{"role": "user", "content": text}]
    async with gateway.ask(messages=messages, headers=headers) as answer:
        found = answer.headers
        return answer.status, found.get("x-vctl-release", ""), found.get(SESSION_HEADER, "")


async def sessions(gateway: Bench, count: int) -> dict[str, tuple[str, str]]:
    """Begin conversations, and return each one's release and pin."""
    begun = {}
    for number in range(count):
        status, release, pin = await ask(gateway, f"conversation {number}")
        assert 200 == status
        begun[f"conversation {number}"] = (release, pin)
    return begun


async def test_sessions_that_echo_stay_while_the_weight_grows(gateway: Bench):
    await gateway.route(MOVING)
    begun = await sessions(gateway, 40)
    assert {"1", "2"} == {release for release, _ in begun.values()}

    await gateway.route(shifted(MOVING, 2, 100.0))
    for text, (release, pin) in begun.items():
        assert (200, release) == (await ask(gateway, text, **brought(pin)))[:2]
        assert (200, release) == (await ask(gateway, text, cookie=f"{COOKIE}={pin}"))[:2]
        assert (200, "2") == (await ask(gateway, text))[:2], "without a pin it moves"


async def test_sessions_move_once_the_rollout_has_settled(gateway: Bench):
    await gateway.route(MOVING)
    begun = await sessions(gateway, 10)
    await gateway.route(settled(MOVING, 2, retained=(1,)))

    for text, (_, pin) in begun.items():
        assert (200, "2", "") == await ask(gateway, text, **brought(pin))


async def test_rollback_takes_every_session_back(gateway: Bench):
    await gateway.route(MOVING)
    begun = await sessions(gateway, 10)
    await gateway.route(returned(MOVING, 1, revoke=(2,)))

    for text, (_, pin) in begun.items():
        assert (200, "1", "") == await ask(gateway, text, **brought(pin))


async def test_forged_pin_holds_nobody(gateway: Bench):
    await gateway.route(MOVING)
    begun = await sessions(gateway, 20)
    forger = Pins(FleetKey([b"f" * 32]), fleet="dev", digest=lambda *_: "d")
    for text, (release, _) in begun.items():
        other = 2 if release == "1" else 1
        forged = forger.make("support", Pin(other, "k"))
        assert (200, release) == (await ask(gateway, text, **brought(forged)))[:2]


async def test_named_release_outweighs_a_pin(gateway: Bench):
    await gateway.route(MOVING)
    _, release, pin = await ask(gateway, "a conversation")
    other = "2" if release == "1" else "1"
    named = brought(pin) | {"x-vctl-release": other}
    assert (200, other) == (await ask(gateway, "a conversation", **named))[:2]


@pytest.mark.parametrize("consistency", [Consistency.EVENTUAL, Consistency.STRICT])
async def test_routes_that_hold_nobody_give_no_pins(gateway: Bench, consistency: Consistency):
    await gateway.route(a_route(1, candidate=2, weight=50.0, consistency=consistency))
    assert "" == (await ask(gateway, "a conversation"))[2]


async def test_cookie_is_given_where_it_is_set(tmp_path: Path):
    given_: dict[str, Any] = {"fleet_key": KEY, "has_session_cookie": True}
    async with serving(tmp_path, has_access_log=False, **given_) as bench:
        await bench.route(MOVING)
        async with bench.ask() as answer:
            pin = answer.headers[SESSION_HEADER]
            assert answer.headers["Set-Cookie"].startswith(f"{COOKIE}={pin}; ")


async def test_pin_never_reaches_the_engine(gateway: Bench):
    await gateway.route(MOVING)
    _, _, pin = await ask(gateway, "a conversation")
    await ask(gateway, "a conversation", **brought(pin))
    assert all(SESSION_HEADER not in fields for fields in gateway.engine.headers)


async def test_who_was_sent_to_the_candidate_by_name_does_not_fall_back(gateway: Bench):
    await gateway.route(a_route(1, candidate=2, weight=10.0))
    begun = await sessions(gateway, 20)
    text = next(text for text, (release, _) in begun.items() if release == "1")
    assert (200, "2") == (await ask(gateway, text, **{"x-vctl-release": "2"}))[:2]
    assert (200, "2") == (await ask(gateway, text))[:2]


async def test_agent_hears_how_many_sessions_are_on_which_release(gateway: Bench):
    await gateway.route(MOVING)
    begun = await sessions(gateway, 20)
    counts = Counter(int(release) for release, _ in begun.values())
    gateway.gateway.link.ring()
    await eventually(lambda: gateway.agent.last.pins == {"support": dict(sorted(counts.items()))})
    await gateway.route(settled(MOVING, 2, retained=(1,)))
    await eventually(lambda: gateway.agent.last.pins == {})
