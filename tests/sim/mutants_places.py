"""Deliberate breakages, as in `mutants`: of places for adapters, and of what engines are asked."""

from tests.sim.mutants import Mutant

_PLANS = "plans/vctl_plans"
_AGENT = "agent/vctl_agent"
_CAPACITY = ("tests/plans/test_capacity.py",)
_PLACES = ("tests/agent/test_places.py",)
_DRAINED = ("tests/plans/test_drained.py",)

PLACES: tuple[Mutant, ...] = (
    # -- at the start --------------------------------------------------------------------------
    Mutant(
        name="let nothing give way",
        file=f"{_PLANS}/capacity.py",
        old="        given.append(retained.pop(0))\n",
        new="        break\n",
        tests=_CAPACITY,
    ),
    Mutant(
        name="let the newest of the retained give way first",
        file=f"{_PLANS}/capacity.py",
        old="        given.append(retained.pop(0))\n",
        new="        given.append(retained.pop())\n",
        tests=_CAPACITY,
    ),
    Mutant(
        name="unload what serves without being allowed to",
        file=f"{_PLANS}/capacity.py",
        old="    if allow_downtime and can_exchange:\n",
        new="    if can_exchange:\n",
        tests=_CAPACITY,
    ),
    Mutant(
        name="count the places of one service only",
        file=f"{_PLANS}/capacity.py",
        old="        live |= adapters(service, _moving(service))\n",
        new="        live |= adapters(service, ())\n",
        tests=_CAPACITY,
    ),
    Mutant(
        name="keep in the route what gave way",
        file=f"{_PLANS}/operate.py",
        old="        route=without(route, gives_way),\n",
        new="",
        tests=_CAPACITY,
    ),
    Mutant(
        name="list nothing of what gave way",
        file=f"{_PLANS}/operate.py",
        old="{*_handed_on(service, replaced, target), *gives_way}",
        new="{*_handed_on(service, replaced, target)}",
        tests=_CAPACITY,
    ),
    Mutant(
        name="start whatever rank an adapter has",
        file=f"{_PLANS}/placing.py",
        old="        capacity.refuse_rank(service, target)\n",
        new="",
        tests=("tests/cli/test_rollout_start.py",),
    ),
    # -- while it runs -------------------------------------------------------------------------
    Mutant(
        name="leave what nobody wants in the place of what is brought",
        file=f"{_PLANS}/decision.py",
        old="    if not left or not acknowledged(state, event).is_complete:\n",
        new="    if left or not acknowledged(state, event).is_complete:\n",
        tests=_CAPACITY,
    ),
    Mutant(
        name="retain what is on another base",
        file=f"{_PLANS}/forward.py",
        old="    if state.rollout.wave_size:\n        retain = 0\n",
        new="    if state.rollout.wave_size < 0:\n        retain = 0\n",
        tests=("tests/plans/test_waves.py",),
    ),
    Mutant(
        name="leave nodes with nothing when their one place refuses",
        file=f"{_PLANS}/waves.py",
        old="    if rollout.is_at_once and not rollout.has_moved",
        new="    if rollout.is_at_once and rollout.has_moved",
        tests=_CAPACITY,
    ),
    Mutant(
        name="move traffic while caches are full",
        file=f"{_PLANS}/forward.py",
        old="    if tally.is_met(plan) and not busy:\n",
        new="    if tally.is_met(plan):\n",
        tests=_CAPACITY,
    ),
    # -- on a node -----------------------------------------------------------------------------
    Mutant(
        name="load into a full engine",
        file=f"{_PLANS}/node_machine.py",
        old="    if facts.is_staged and facts.no_place:\n",
        new="    if facts.is_staged and not facts.is_staged:\n",
        tests=_PLACES,
    ),
    Mutant(
        name="count only what the engine lists",
        file=f"{_AGENT}/places.py",
        old="{n for n in loading if is_adapter(n)}",
        new="{n for n in loading if not n}",
        tests=_PLACES,
    ),
    Mutant(
        name="keep no place for what serves",
        file=f"{_AGENT}/places.py",
        old="            if rank < own and not self._is_hopeless(theirs, made)\n",
        new="            if rank > _LAST and not self._is_hopeless(theirs, made)\n",
        tests=_PLACES,
    ),
    Mutant(
        name="keep a place for what can never be loaded",
        file=f"{_AGENT}/places.py",
        old="            if rank < own and not self._is_hopeless(theirs, made)\n",
        new="            if rank < own and theirs and made\n",
        tests=_PLACES,
    ),
    Mutant(
        name="exchange under requests",
        file=f"{_PLANS}/node_machine.py",
        old="        return _drained(facts)\n    return _towards_ready(facts)",
        new="        return Verdict(N.DRAINING, Action.UNLOAD)\n    return _towards_ready(facts)",
        tests=_PLACES,
    ),
    Mutant(
        name="take memory that nobody tells of for enough",
        file=f"{_PLANS}/capacity.py",
        old='        return "" if least is None else f"free memory is not known,',
        new='        return "" if least is not None else f"free memory is not known,',
        tests=_CAPACITY,
    ),
    Mutant(
        name="ask an engine for what it certainly does not take",
        file=f"{_AGENT}/admission.py",
        old="    if problem:\n",
        new="    if not problem:\n        return\n    if not adapter:\n",
        tests=_PLACES,
    ),
    # -- by waves, while an operator has drained nodes -------------------------------------------
    Mutant(
        name="have traffic follow a drained node by waves",
        file=f"{_PLANS}/waves.py",
        old="    carry = sum(node not in event.drained for node in held.done)\n",
        new="    carry = len(held.done)\n",
        tests=_DRAINED,
    ),
    Mutant(
        name="have others change beside a drained node",
        file=f"{_PLANS}/waves.py",
        old="        found -= {*done} - drained\n",
        new="        found -= {*done} | drained\n",
        tests=_DRAINED,
    ),
    Mutant(
        name="let a drained node alone meet a gate",
        file=f"{_PLANS}/decision.py",
        old="    if not set(tally.done) - event.drained:\n",
        new="    if not tally.done:\n",
        tests=_DRAINED,
    ),
)
