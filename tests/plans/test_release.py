"""Releases: numbers and counters that are never used again, digests over what is served."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import SERVICE, a_root, an_adapter, an_adapter_wish, some_releases
from vctl_plans import invariants
from vctl_plans.phase import Component
from vctl_plans.release import (
    Actor,
    Artifact,
    Release,
    compose,
    has_same_content,
    release_digest,
)


def made(
    number: int, *, known: dict[int, Release], stable: Release | None = None, reason: str = ""
) -> Release:
    """Return the next release, with adapter *number*."""
    return compose(
        SERVICE,
        an_adapter_wish(number),
        known=known.values(),
        stable=stable,
        by=Actor(user="ann"),
        reason=reason,
    )


def test_first_release_counts_from_one() -> None:
    """Number and counters begin at 1."""
    first = made(1, known={})

    assert (1, {Component.ADAPTER: 1}) == (first.number, first.vector)
    assert "adapter=1" == first.vector_text


def test_same_root_keeps_its_counter() -> None:
    """What did not change is the same version still."""
    known = some_releases(3)
    again = made(3, known=known, stable=known[3])

    assert (4, 3) == (again.number, again.vector[Component.ADAPTER])


def test_counter_after_a_rollback_is_a_new_one() -> None:
    """Stable is 1 again; what comes next is neither number 2 nor counter 2."""
    known = some_releases(2)
    after = made(9, known=known, stable=known[1])

    assert (3, 3) == (after.number, after.vector[Component.ADAPTER])


@given(
    st.lists(
        st.tuples(st.sampled_from(list(Component)), st.integers(1, 3), st.integers(0, 20)),
        max_size=12,
    )
)
def test_counters_name_one_root_whatever_is_made_from_whatever(
    steps: list[tuple[Component, int, int]],
) -> None:
    """From any stable release, in any order, with roots that come back."""
    known: dict[int, Release] = {}
    for component, root, stable in steps:
        release = compose(
            SERVICE,
            {component: an_adapter(root)},
            known=known.values(),
            stable=known.get(stable),
            by=Actor(),
        )
        assert release.number not in known
        known[release.number] = release

    assert [] == invariants.releases(known.values())


def test_digest_covers_what_is_served_only() -> None:
    """Who made it, why, and where it lies may differ; a root or a counter may not."""
    release = some_releases(1)[1]
    told = msgspec.structs.replace(release, by=Actor(user="bo"), reason="x", digest="")
    other = msgspec.structs.replace(release, vector={Component.ADAPTER: 2})

    assert release.digest == release_digest(told)
    assert release.digest != release_digest(other)


def test_digest_is_fixed() -> None:
    """It names releases in etcd, reports and pins: another value breaks a running fleet."""
    adapter = Artifact(root=f"b3:{1:064x}", source="file:///adapters/v1")
    release = compose(
        SERVICE, {Component.ADAPTER: adapter}, known=(), stable=None, by=Actor(user="ann")
    )

    assert "b3:6252c1a0d093dff86a0034b2df643c0f75e88872d0aea408ffb05568b08224a5" == release.digest


def test_engine_name_is_the_content() -> None:
    """A changed byte is another adapter to the engine."""
    releases = some_releases(2)

    assert f"support@{a_root(1)[3:15]}" == releases[1].engine_name
    assert "" == msgspec.structs.replace(releases[1], components={}).engine_name


def test_same_content_is_told_by_root() -> None:
    """Every named component at its root; others do not matter."""
    release = some_releases(1)[1]

    assert has_same_content(release, an_adapter_wish(1))
    assert not has_same_content(release, an_adapter_wish(2))
    assert not has_same_content(release, {Component.PROMPT: an_adapter(1)})


A, P, X = Component.ADAPTER, Component.PROMPT, Component.INDEX


def brought(known: dict[int, Release], stable: int, **roots: int) -> Release:
    """Add the release that brings components by the numbers of their roots to *known*."""
    release = compose(
        SERVICE,
        {Component(name): an_adapter(root) for name, root in roots.items()},
        known=known.values(),
        stable=known.get(stable),
        by=Actor(),
    )
    known[release.number] = release
    return release


def test_components_that_are_brought_together_count_together() -> None:
    """One release, whose counters moved in one step."""
    known: dict[int, Release] = {}
    brought(known, 0, adapter=1, prompt=1)

    both = brought(known, 1, adapter=2, prompt=2)

    assert ({A: 2, P: 2}, "adapter=2,prompt=2") == (both.vector, both.vector_text)


def test_new_prompt_keeps_the_counter_of_the_adapter() -> None:
    """And the adapter itself, with its name in the engine; the release's digest is another."""
    known: dict[int, Release] = {}
    first = brought(known, 0, adapter=1, prompt=1)

    second = brought(known, 1, prompt=2)

    assert {A: 1, P: 2} == second.vector
    assert (first.adapter, first.engine_name) == (second.adapter, second.engine_name)
    assert first.digest != second.digest


def test_component_that_is_brought_later_begins_at_one() -> None:
    """The others keep what they have."""
    known: dict[int, Release] = {}
    brought(known, 0, adapter=1)
    brought(known, 1, adapter=2)

    third = brought(known, 2, index=9)

    assert {A: 2, X: 1} == third.vector


def test_counters_after_a_rollback_are_new_for_what_changes_alone() -> None:
    """Stable is 1 again: what it had keeps its counters, what comes gets one that nobody had."""
    known: dict[int, Release] = {}
    brought(known, 0, adapter=1, prompt=1)
    brought(known, 1, adapter=2, prompt=2)

    third = brought(known, 1, prompt=3)

    assert {A: 1, P: 3} == third.vector


def test_what_a_node_stages_is_all_of_it() -> None:
    """The application reads neither base weights nor the adapter."""
    release = brought({}, 0, weights=4, index=3, adapter=1, prompt=2)

    assert ([Component.WEIGHTS, A, P, X], [P, X]) == (
        list(release.staged),
        list(release.for_application),
    )
