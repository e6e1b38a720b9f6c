"""Deliberate breakages, as in `mutants`: of nodes, barriers, conductors and gateways."""

from tests.sim.mutants import PLANS, Mutant
from tests.sim.mutants_disk import DISK
from tests.sim.mutants_places import PLACES

_PLANS = "plans/vctl_plans"
_AGENT = "agent/vctl_agent"
_MACHINE = ("tests/plans/test_machine.py", "tests/plans/test_machine_scenarios.py")

AGENT: tuple[Mutant, ...] = (
    # -- nodes ---------------------------------------------------------------------------------
    Mutant(
        name="load what was not verified",
        file=f"{_PLANS}/node_machine.py",
        old="    if facts.is_staged:\n",
        new="    if not facts.is_resident:\n",
        tests=("tests/plans/test_node_machine.py",),
    ),
    Mutant(
        name="call ready what was not probed",
        file=f"{_PLANS}/node_machine.py",
        old="    if not facts.is_probed:\n",
        new="    if facts.is_probed is None:\n",
        tests=("tests/plans/test_node_machine.py",),
    ),
    Mutant(
        name="take for an orphan what a request may mean",
        file=f"{_PLANS}/orphans.py",
        old="    if (named | requested) - known:\n",
        new="    if named - known:\n",
        tests=("tests/agent/test_orphans.py",),
    ),
    Mutant(
        name="let a release be ready by what goes as an orphan",
        file=f"{_AGENT}/doing.py",
        old="        self.phases[name] = NodePhase.DRAINING\n",
        new="        self.phases[name] = NodePhase.READY\n",
        tests=("tests/agent/test_orphans.py",),
    ),
    Mutant(
        name="ask nothing again after a flush",
        file=f"{_AGENT}/engines/epochs.py",
        old="        self._probed.expire()\n        try:\n",
        new="        try:\n",
        tests=("tests/agent/test_epochs.py",),
    ),
    Mutant(
        name="take a probe that began before the flush",
        file=f"{_AGENT}/engines/epochs.py",
        old="        finally:\n            self._probed.expire()\n",
        new="        finally:\n            pass\n",
        tests=("tests/agent/test_epochs.py",),
    ),
    Mutant(
        name="unload before the drain",
        file=f"{_PLANS}/node_machine.py",
        old="    if facts.in_flight == 0 and not facts.is_offered:\n",
        new="    if not facts.is_offered:\n",
        tests=("tests/plans/test_node_machine.py",),
    ),
    Mutant(
        name="unload what the gateway still hands out",
        file=f"{_PLANS}/node_machine.py",
        old="    if facts.in_flight == 0 and not facts.is_offered:\n",
        new="    if facts.in_flight == 0:\n",
        tests=("tests/plans/test_node_machine.py",),
    ),
    Mutant(
        name="unload what no list names",
        file=f"{_PLANS}/node_machine.py",
        old="    if not facts.may_unload:\n",
        new="    if facts.may_unload is None:\n",
        tests=("tests/plans/test_node_machine.py",),
    ),
    Mutant(
        name="unload what was called back",
        file=f"{_AGENT}/reconciler.py",
        old="        may_unload = is_listed and not is_wanted and held.may_be_here\n",
        new="        began = (service.name, release.number) in self._drain_began"
        " and held.is_here\n"
        "        is_wanted = is_wanted and not began\n"
        "        may_unload = (is_listed or began) and not is_wanted and held.may_be_here\n",
        tests=("tests/agent/test_reconciler.py",),
    ),
    Mutant(
        name="go on with an exchange that was called back",
        file=f"{_AGENT}/reconciler.py",
        old="        goes = is_apart(service, release.number, self._node)\n",
        new="        goes = is_apart(service, release.number, self._node)\n"
        "        began = (service.name, release.number) in self._drain_began\n"
        "        goes = goes or (began and held.is_here and is_wanted)\n",
        tests=("tests/agent/test_reconciler.py",),
    ),
    Mutant(
        name="tell the gateway before the probe",
        file=f"{_AGENT}/telling.py",
        old="            if verdict.phase is NodePhase.READY and not service.is_direct\n",
        new="            if verdict.phase in {NodePhase.READY, NodePhase.PROBING}\n",
        tests=("tests/agent/test_reconciler.py",),
    ),
    Mutant(
        name="take an unknown number of requests for none",
        file=f"{_AGENT}/reconciler.py",
        old="in_flight(service, release, heard, held) if heard else None,",
        new="in_flight(service, release, heard, held) if heard else 0,",
        tests=("tests/agent/test_reconciler.py",),
    ),
    Mutant(
        name="unload an adapter that another release needs",
        file=f"{_AGENT}/holdings.py",
        old="any(adapter and adapter.root == release.adapter.root for adapter in adapters)\n",
        new="any(adapter and not adapter.root for adapter in adapters)\n",
        tests=("tests/agent/test_reconciler.py",),
    ),
    Mutant(
        name="believe a probe from before the adapter was loaded",
        file=f"{_AGENT}/engines/changes.py",
        old="            self._probed.discard(name)  # a probe counts since the load,"
        " whoever unloaded it\n",
        new="",
        tests=("tests/agent/test_reconciler.py",),
    ),
    Mutant(
        name="believe the engine that it unloaded",
        file=f"{_AGENT}/engines/changes.py",
        old="        if not seen or any(resident.name == name for resident in seen.adapters):\n",
        new="        if not seen:\n",
        tests=("tests/agent/test_reconciler.py",),
    ),
    Mutant(
        name="hold a failure against the next attempt",
        file=f"{_AGENT}/tries.py",
        old="        if not tried or tried.occasion.attempt != now.attempt:\n",
        new="        if not tried:\n",
        tests=("tests/agent/test_reconciler.py",),
    ),
    Mutant(
        name="take a node's name from another agent that lives",
        file=f"{_AGENT}/presence.py",
        old="        if self._took_name and found and found.value != self._written:\n",
        new="        if not self._took_name and found and found.value != self._written:\n",
        tests=("tests/agent/test_presence.py",),
    ),
    Mutant(
        name="write a report over that of an agent that has the name now",
        file=f"{_AGENT}/presence.py",
        old="            (ValueIs(self._keys.node(self._node), self._written),),\n",
        new="            (),\n",
        tests=("tests/agent/test_presence.py",),
    ),
    # -- probes, prompts -----------------------------------------------------------------------
    Mutant(
        name="believe the cache whatever it says",
        file=f"{_AGENT}/engines/probe.py",
        old="    if apart > allowed:\n",
        new="    if apart < 0.0:\n",
        tests=("tests/agent/test_probe.py",),
    ),
    Mutant(
        name="call any answer to a golden prompt right",
        file=f"{_AGENT}/golden.py",
        old="        if found:\n            problems",
        new="        if found is None:\n            problems",
        tests=("tests/agent/test_golden.py",),
    ),
    Mutant(
        name="quarantine what serves without permission",
        file=f"{_PLANS}/fuse.py",
        old="    if release.number != stable or is_named:\n",
        new="    if release.number:\n",
        tests=("tests/plans/test_fuse.py",),
    ),
    Mutant(
        name="permit as many quarantines as fail",
        file=f"{_PLANS}/fuse.py",
        old="sorted([*kept, *others][:room])",
        new="sorted([*kept, *others])",
        tests=("tests/plans/test_fuse.py",),
    ),
    Mutant(
        name="apply a release's prompt to nothing",
        file=f"{_AGENT}/gateway/call.py",
        old="    if form and target.template:\n",
        new="    if form and not target.model:\n",
        tests=("tests/gateway/test_prompts.py",),
    ),
    # -- groups, barriers, absences ------------------------------------------------------------
    Mutant(
        name="give a group's release to all who come",
        file=f"{_PLANS}/groups.py",
        old="    if group.users and not _holds(group.users, caller.user):\n",
        new="    if group.users and not caller.user:\n",
        tests=("tests/plans/test_groups.py",),
    ),
    Mutant(
        name="act on a route whose groups are not read",
        file=f"{_AGENT}/gateway/state.py",
        old="(routes if at.groups <= known.groups.keys() else waiting)[service] = at\n",
        new="routes[service] = at\n",
        tests=("tests/gateway/test_state.py",),
    ),
    Mutant(
        name="keep what groups had when it is revoked",
        file=f"{_PLANS}/route.py",
        old="        overrides=tuple(o for o in route.overrides if o.release not in revoke),\n",
        new="",
        tests=("tests/plans/test_route.py",),
    ),
    Mutant(
        name="switch strictly before all gateways hold",
        file=f"{_PLANS}/barrier.py",
        old="    if not is_held:\n        why",
        new="    if present is None:\n        why",
        tests=("tests/plans/test_strict.py",),
    ),
    Mutant(
        name="switch strictly to what is not ready any more",
        file=f"{_PLANS}/barrier.py",
        old="    is_ready = holding.is_met(plan)\n",
        new="    is_ready = holding is not None\n",
        tests=("tests/plans/test_strict.py",),
    ),
    Mutant(
        name="switch strictly without the nodes that vanished",
        file=f"{_PLANS}/barrier.py",
        old="        (*state.roster, *joined),\n",
        new="        (*(n for n in state.roster if n not in event.gone), *joined),\n",
        tests=("tests/plans/test_strict.py",),
    ),
    Mutant(
        name="answer while requests are to be held",
        file=f"{_AGENT}/gateway/barrier.py",
        old="        return hold.stage is Stage.FENCED\n",
        new="        return hold.stage in {Stage.FENCED, Stage.HOLD}\n",
        tests=("tests/gateway/test_barrier.py",),
    ),
    Mutant(
        name="serve on behind the fence",
        file=f"{_AGENT}/gateway/barrier.py",
        old="        if self._is_cut_off(hold):\n",
        new="        if self._is_cut_off(hold) and hold.stage is Stage.HOLD:\n",
        tests=("tests/gateway/test_barrier.py",),
    ),
    Mutant(
        name="go on though too many nodes have vanished",
        file=f"{_PLANS}/decision.py",
        old="    if not lost or not (is_over or len(lost) == len(state.roster)):\n",
        new="    if not lost or not is_over or len(lost) < len(state.roster):\n",
        tests=("tests/plans/test_gates.py",),
    ),
    Mutant(
        name="take a prompt away while requests are answered with it",
        file=f"{_AGENT}/holdings.py",
        old="            each.number == release.number\n            or _goes(",
        new="            each.number < 0\n            or _goes(",
        tests=("tests/agent/test_reconciler.py", "tests/agent/test_components.py"),
    ),
    Mutant(
        name="call a release ready whose prompt is not handed over",
        file=f"{_AGENT}/holdings.py",
        old="        is_whole = has_adapter and self._application.has(release)\n",
        new="        is_whole = has_adapter\n",
        tests=("tests/agent/test_components.py",),
    ),
    # -- conductors ----------------------------------------------------------------------------
    Mutant(
        name="win an election that another has won",
        file=f"{_AGENT}/election.py",
        old="        (CreateRevisionIs(keys.conductor, 0),),\n",
        new="        (),\n",
        tests=("tests/agent/test_conductor.py",),
    ),
    Mutant(
        name="start a phase's time anew after each take-over",
        file=f"{_AGENT}/conductor.py",
        old="        return progress if is_of_phase else None\n",
        new="        return None\n",
        tests=("tests/agent/test_conductor.py",),
    ),
    # -- gateways ------------------------------------------------------------------------------
    Mutant(
        name="acknowledge a route before it is on disk",
        file=f"{_AGENT}/gateway/live.py",
        old="acted.known.route_revisions())\n        self.acted = acted\n",
        new="acted.known.route_revisions())\n        self.acted = self.acknowledged = acted\n",
        tests=("tests/gateway/test_live.py", "tests/gateway/test_persist.py"),
    ),
    Mutant(
        name="forget all when the store is lost",
        file=f"{_AGENT}/gateway/live.py",
        old="        if not update.is_live:\n            self.lose_contact()\n            return\n",
        new="        if not update.is_live:\n            self.lose_contact()\n"
        "            self._act(Acted())\n            return\n",
        tests=("tests/gateway/test_live.py",),
    ),
    Mutant(
        name="follow a store that was restored from a backup",
        file=f"{_AGENT}/gateway/live.py",
        old="        if is_behind(self.acted.known, update):\n",
        new="        if is_behind(self.acted.known, update) and not self._prefix:\n",
        tests=("tests/gateway/test_live.py",),
    ),
    Mutant(
        name="hand out a release that the agent has under another digest",
        file=f"{_AGENT}/gateway/state.py",
        old="at.release.digest and at.release.digest == here.digest:",
        new="at.release.digest:",
        tests=("tests/gateway/test_state.py",),
    ),
    Mutant(
        name="never give a reference back",
        file=f"{_AGENT}/gateway/inflight.py",
        old="        count = self._counts[release_id] - 1\n",
        new="        count = self._counts[release_id]\n",
        tests=("tests/gateway/test_inflight.py",),
    ),
    Mutant(
        name="serve without taking a reference",
        file=f"{_AGENT}/gateway/serving.py",
        old="        with self._references.hold(release_id):\n",
        new="        if release_id:\n",
        tests=("tests/gateway/test_streaming.py",),
    ),
)

MUTANTS = (*PLANS, *AGENT, *DISK, *PLACES)
