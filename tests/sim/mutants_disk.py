"""Deliberate breakages, as in `mutants`: of what stays on a node's disk, and of its removal."""

from tests.sim.mutants import Mutant

_PLANS = "plans/vctl_plans"
_AGENT = "agent/vctl_agent"
_RETENTION = ("tests/plans/test_retention.py",)

DISK: tuple[Mutant, ...] = (
    Mutant(
        name="forget what the engine was given",
        file=f"{_PLANS}/retention.py",
        old="    found = dict.fromkeys(known.registered, Why.REGISTERED)\n",
        new="    found: dict[str, Why] = {}\n",
        tests=_RETENTION,
    ),
    Mutant(
        name="remove while the engine does not answer",
        file=f"{_PLANS}/retention.py",
        old='    if known.listed is None:\n        return "the engine does not answer"\n',
        new="",
        tests=_RETENTION,
    ),
    Mutant(
        name="remove while the gateway is away",
        file=f"{_PLANS}/retention.py",
        old='    if known.requested is None:\n        return "the gateway is away"\n',
        new="",
        tests=_RETENTION,
    ),
    Mutant(
        name="remove what a running rollout may go back to",
        file=f"{_PLANS}/retention.py",
        old="    return wanted(None, rollout) | (ends | set(rollout.unload)) - {0}\n",
        new="    return wanted(None, rollout) | (ends & set(rollout.unload)) - {0}\n",
        tests=_RETENTION,
    ),
    Mutant(
        name="remove what the application has",
        file=f"{_PLANS}/retention.py",
        old="((known.handed, Why.HANDED), (known.requested or (), Why.REQUESTED))",
        new="((frozenset(), Why.HANDED), (known.requested or (), Why.REQUESTED))",
        tests=_RETENTION,
    ),
    Mutant(
        name="make room with what serves",
        file=f"{_PLANS}/retention.py",
        old="        return self in {Why.LAST_GOOD, Why.NEWEST}\n",
        new="        return self in {Why.LAST_GOOD, Why.NEWEST, Why.ROUTED}\n",
        tests=_RETENTION,
    ),
    Mutant(
        name="note what the engine was given after it was asked",
        file=f"{_AGENT}/registered.py",
        old="        self._note(self._record.incarnation, {*self._record.roots, root})\n"
        "        try:\n            yield\n        finally:\n",
        new="        try:\n            yield\n        finally:\n"
        "            self._note(self._record.incarnation, {*self._record.roots, root})\n",
        tests=("tests/agent/test_registered.py",),
    ),
    Mutant(
        name="keep what another run of the engine was given",
        file=f"{_AGENT}/registered.py",
        old='        is_same = self._record.incarnation in {"", engine.incarnation}\n',
        new='        is_same = self._record.incarnation != "none"\n',
        tests=("tests/agent/test_registered.py",),
    ),
    Mutant(
        name="forget what is being given when the engine starts anew",
        file=f"{_AGENT}/registered.py",
        old="        before = set(self._record.roots) if is_same else set(self._giving)\n",
        new="        before = set(self._record.roots) if is_same else set()\n",
        tests=("tests/agent/test_registered.py",),
    ),
    Mutant(
        name="give the engine a directory that was removed",
        file=f"{_AGENT}/engines/changes.py",
        old="        if not self._artifacts.is_staged(root):\n",
        new='        if root == "none":\n',
        tests=("tests/agent/test_collecting.py",),
    ),
    Mutant(
        name="remove what a thread stages",
        file=f"{_AGENT}/artifacts/collect.py",
        old="            return False\n        try:\n            self._artifacts.distrust(root)\n",
        new="            lock = threading.Lock()\n            lock.acquire()\n"
        "        try:\n            self._artifacts.distrust(root)\n",
        tests=("tests/agent/test_collect.py",),
    ),
    Mutant(
        name="delete before the rename",
        file=f"{_AGENT}/artifacts/collect.py",
        old="            self._artifacts.distrust(root)\n            is_aside =",
        new="            self._artifacts.distrust(root)\n"
        "            _delete(self._artifacts.path(root))\n            is_aside =",
        tests=("tests/agent/test_collect.py",),
    ),
)
