"""The breakages of the mutation proof fit the source; the proof itself is `make mutants`."""

import pytest

from tests.sim.mutants import Mutant
from tests.sim.mutants_agent import MUTANTS
from tests.sim.mutations import ROOT, mutated


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_breakage_still_applies(mutant: Mutant) -> None:
    """Its text stands in the source once, what comes of it is Python, and its tests exist."""
    source = (ROOT / mutant.file).read_text()
    changed = mutated(mutant, source)

    assert source != changed
    compile(changed, mutant.file, "exec")
    assert [] == [test for test in mutant.tests if not (ROOT / test).exists()]


def test_breakages_have_names_of_their_own() -> None:
    names = [mutant.name for mutant in MUTANTS]

    assert sorted(set(names)) == sorted(names)
    assert len(names) >= 20


def test_breakage_whose_text_is_gone_is_refused() -> None:
    gone = Mutant(name="gone", file="a.py", old="never there", new="")

    with pytest.raises(ValueError, match=r"gone: a\.py holds 0 of"):
        mutated(gone, "something else")
