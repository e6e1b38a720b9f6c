"""What the probe finds in four answers."""

import pytest

from vctl_agent.engines.probe import Answer, finding

OWN = Answer(("a", "b"), (-0.5, -1.0))
BASE = Answer(("c", "d"), (-0.2, -0.3))
ROUNDED = Answer(("a", "b"), (-0.50001, -0.99999))


def test_probe_finds_nothing_wrong_with_an_adapter_that_is_itself() -> None:
    """Rounding is no difference."""
    assert finding(first=OWN, again=ROUNDED, fresh=OWN, base=BASE) == ""


@pytest.mark.parametrize(
    ("first", "again", "fresh", "base", "found"),
    [
        (OWN, BASE, OWN, BASE, "cached answer differs"),
        (BASE, OWN, OWN, BASE, "cached answer differs"),
        (OWN, Answer(("a", "b"), (-0.5, -1.1)), OWN, BASE, "cached answer differs"),
        (OWN, OWN, OWN, ROUNDED, "matched no module"),
        (Answer((), ()), OWN, OWN, BASE, "answers nothing"),
    ],
)
def test_probe_names_what_is_wrong(
    first: Answer, again: Answer, fresh: Answer, base: Answer, found: str
) -> None:
    """A stale cache and an adapter without effect are told apart."""
    assert found in finding(first=first, again=again, fresh=fresh, base=base)
