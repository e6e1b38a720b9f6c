"""Deliberate breakages: each is one change of the source that must not go unnoticed.

A breakage that neither the simulator nor the named unit tests catch is a missing test. To add one:
the file, a text that stands in it once, what stands there instead, and the unit tests that should
tell when the simulator can't.
"""

import msgspec


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """One breakage."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()  # run when the simulator has not caught it


_PLANS = "plans/vctl_plans"
_MACHINE = ("tests/plans/test_machine.py", "tests/plans/test_machine_scenarios.py")
_WEIGHTED = ("tests/plans/test_weighted.py",)

PLANS: tuple[Mutant, ...] = (
    # -- transactions --------------------------------------------------------------------------
    Mutant(
        name="drop the fence",
        file=f"{_PLANS}/store/commit.py",
        old="    if fence:\n",
        new="    if fence < 0:\n",
        tests=("tests/plans/test_commit.py",),
    ),
    Mutant(
        name="write over a rollout that has changed",
        file=f"{_PLANS}/store/commit.py",
        old="        ModRevisionIs(keys.rollout(service.name), service.rollout_revision),\n",
        new="",
        tests=("tests/plans/test_commit.py",),
    ),
    Mutant(
        name="use a release's number twice",
        file=f"{_PLANS}/release.py",
        old="        number=1 + max((r.number for r in releases), default=0),\n",
        new="        number=max(1, max((r.number for r in releases), default=0)),\n",
        tests=("tests/plans/test_release.py",),
    ),
    # -- gates ---------------------------------------------------------------------------------
    Mutant(
        name="skip the ready gate",
        file=f"{_PLANS}/forward.py",
        old="    if tally.is_met(plan):\n",
        new="    if tally.done:\n",
        tests=_MACHINE,
    ),
    Mutant(
        name="count a vanished node as ready",
        file=f"{_PLANS}/gate.py",
        old="        elif release and release.is_permanent:\n",
        new="        elif report is None:\n"
        "            done.append(node)\n"
        "        elif release and release.is_permanent:\n",
        tests=("tests/plans/test_gate.py",),
    ),
    Mutant(
        name="count a dead agent's last report",
        file=f"{_PLANS}/snapshot.py",
        old="self.records and self.records[node].boot_id == report.boot_id\n",
        new="self.records\n",
        tests=("tests/plans/test_snapshot.py",),
    ),
    Mutant(
        name="count what a node said before the attempt",
        file=f"{_PLANS}/gate.py",
        old="        if release and release.attempt != rollout.attempt:\n",
        new="        if release and release.attempt == '?':\n",
        tests=("tests/plans/test_gate.py",),
    ),
    Mutant(
        name="count a node as ready whose gateway was not told",
        file=f"{_PLANS}/gate.py",
        old="release.phase in enough and report and report.gateway_ok:",
        new="release.phase in enough and report:",
        tests=("tests/plans/test_gate.py",),
    ),
    Mutant(
        name="take any route for the newest one",
        file=f"{_PLANS}/gate.py",
        old="report.routes.get(service, 0) >= revision,",
        new="report.routes.get(service, 0) > 0,",
        tests=("tests/plans/test_gate.py",),
    ),
    Mutant(
        name="pass a gate with an empty roster",
        file=f"{_PLANS}/gate.py",
        old="        return bool(self.done) and not self.missing and not self.refused\n",
        new="        return not self.missing and not self.refused\n",
        tests=("tests/plans/test_gate.py", *_MACHINE),
    ),
    # -- forward -------------------------------------------------------------------------------
    Mutant(
        name="take the next step without its nodes being ready",
        file=f"{_PLANS}/forward.py",
        old="    if rollout.is_by_waves or tally.is_met(state.plan):\n        index = last if",
        new="    if rollout.is_by_waves or tally:\n        index = last if",
        tests=_WEIGHTED,
    ),
    Mutant(
        name="skip the soak",
        file=f"{_PLANS}/soaking.py",
        old="    if now_s < left_s:\n",
        new="    if now_s < left_s / 2:\n",
        tests=_WEIGHTED,
    ),
    Mutant(
        name="end a soak a second early",
        file=f"{_PLANS}/soaking.py",
        old="max(0.0, here.soak_s - rollout.soaked_s)",
        new="max(0.0, here.soak_s - 1.0 - rollout.soaked_s)",
        tests=("tests/plans/test_weighted.py",),
    ),
    Mutant(
        name="go on from a manual step by itself",
        file=f"{_PLANS}/soaking.py",
        old="    if here.manual and not rollout.promoted:\n",
        new="    if here.manual and rollout.awaits_promote:\n",
        tests=_WEIGHTED,
    ),
    Mutant(
        name="skip a step",
        file=f"{_PLANS}/forward.py",
        old="is Promotion.FULL else rollout.step + 1\n",
        new="is Promotion.FULL else min(rollout.step + 2, last)\n",
        tests=_WEIGHTED,
    ),
    Mutant(
        name="let a promotion outlive its step",
        file=f"{_PLANS}/steps.py",
        old='{"step": index, "promoted": Promotion.NONE, ',
        new='{"step": index, ',
        tests=_WEIGHTED,
    ),
    Mutant(
        name="wait for ever for a route that is not reported",
        file=f"{_PLANS}/forward.py",
        old="    if not tally.is_complete and now_s < limit_s:\n",
        new="    if not tally.is_complete:\n",
        tests=_MACHINE,
    ),
    Mutant(
        name="forget what has passed of a soak",
        file=f"{_PLANS}/decision.py",
        old="        soaked_s=soaked(state.rollout, now_s),\n",
        new="        soaked_s=0.0,\n",
        tests=_WEIGHTED,
    ),
    Mutant(
        name="list for unloading before the route is reported",
        file=f"{_PLANS}/decision.py",
        old="        if not tally.is_complete and now_s < limit_s:\n"
        "            return stay(state, until_s=limit_s)\n"
        "        if not tally.is_complete:\n"
        "            return _end(state, event, tally, end=end, word=word)\n",
        new="",
        tests=_MACHINE,
    ),
    Mutant(
        name="list for unloading what is retained",
        file=f"{_PLANS}/rollout.py",
        old="    numbers = set(route.serving) | set(route.instant) if route else set()\n",
        new="    numbers = set(route.serving) if route else set()\n",
        tests=("tests/plans/test_rollout.py",),
    ),
    Mutant(
        name="wait for ever for an unload",
        file=f"{_PLANS}/decision.py",
        old="    if left.is_complete or now_s >= limit_s:\n",
        new="    if left.is_complete:\n",
        tests=_MACHINE,
    ),
    # -- back ----------------------------------------------------------------------------------
    Mutant(
        name="forget to revoke on a rollback",
        file=f"{_PLANS}/backward.py",
        old="() if rollout.cause in {Cause.ABORTED, Cause.OVERRIDE} else _left(state)\n",
        new="()\n",
        tests=_MACHINE,
    ),
    Mutant(
        name="revoke on an abort",
        file=f"{_PLANS}/backward.py",
        old="() if rollout.cause in {Cause.ABORTED, Cause.OVERRIDE} else _left(state)\n",
        new="_left(state)\n",
        tests=_MACHINE,
    ),
    Mutant(
        name="move back at once to what is not loaded",
        file=f"{_PLANS}/backward.py",
        old="    if target not in state.route.serving | set(state.route.instant):\n",
        new="    if target < 0:\n",
        tests=_MACHINE,
    ),
    Mutant(
        name="forget what was revoked before",
        file=f"{_PLANS}/route.py",
        old="        revoked=tuple(sorted({*route.revoked, *revoke})),\n",
        new="        revoked=tuple(sorted(revoke)),\n",
        tests=("tests/plans/test_route.py",),
    ),
    Mutant(
        name="keep what is revoked ready for an instant rollback",
        file=f"{_PLANS}/route.py",
        old="if n not in revoke and n != target),",
        new="if n != target),",
        tests=("tests/plans/test_route.py",),
    ),
    Mutant(
        name="serve what is revoked when it is asked for",
        file=f"{_PLANS}/operate.py",
        old="    if target.number in service.current_route.revoked:\n",
        new="    if -target.number in service.current_route.revoked:\n",
        tests=("tests/plans/test_operate.py",),
    ),
    Mutant(
        name="start beside a rollout that runs",
        file=f"{_PLANS}/operate.py",
        old="        lambda: _refuse_second(service, supersede=supersede),\n",
        new="",
        tests=("tests/plans/test_operate.py",),
    ),
    Mutant(
        name="ignore conductors that take over again and again",
        file=f"{_PLANS}/machine.py",
        old="    if event.takeovers < MAX_TAKEOVERS:\n",
        new="    if event.takeovers >= 0:\n",
        tests=_MACHINE,
    ),
    Mutant(
        name="resume a step that waits to be promoted",
        file=f"{_PLANS}/machine.py",
        old="    if rollout.awaits_promote:\n",
        new="    if rollout.awaits_promote is None:\n",
        tests=_WEIGHTED,
    ),
    # -- routing -------------------------------------------------------------------------------
    Mutant(
        name="hash sessions anew at each step",
        file=f"{_PLANS}/routing.py",
        old="share(route.salt, key) < route.weight",
        new="share(f'{route.salt}{route.weight}', key) < route.weight",
        tests=("tests/plans/test_routing.py",),
    ),
    Mutant(
        name="serve another release than the one that was named",
        file=f"{_PLANS}/routing.py",
        old="    if release not in route.serving:\n",
        new="    if release not in route.serving and route.stable:\n"
        "        return Choice(route.stable, Why.NAMED)\n"
        "    if release not in route.serving:\n",
        tests=("tests/plans/test_routing.py",),
    ),
    Mutant(
        name="share one cache among all adapters",
        file=f"{_PLANS}/routing.py",
        old="    for part in (tenant, weights_root, adapter_root, client_salt):\n",
        new="    for part in (tenant, weights_root, client_salt):\n",
        tests=("tests/plans/test_routing.py",),
    ),
)
