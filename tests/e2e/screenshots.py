"""The pictures in docs/images, from a real run: `python -m tests.e2e.screenshots`.

A fleet of four nodes is started, clients ask it, and a guarded rollout goes up by steps, waits for
a person and is taken back. At each moment the renderer's own lines are exported as SVG. Look at
what it writes before it is committed.
"""

import asyncio
import re
import tempfile
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME

from tests.e2e.support import SERVICE, Fleet, Load, a_fleet
from vctl_cli.follow import Follow, Scene, scenes
from vctl_cli.render.picture import Frame, rollout_picture
from vctl_cli.render.terminal import UNICODE
from vctl_plans.keys import Keys
from vctl_plans.phase import RolloutPhase as P
from vctl_plans.store.etcd import open_store
from vctl_plans.store.settings import StoreSettings

IMAGES = Path(__file__).parents[2] / "docs" / "images"
COLUMNS, LINES = 100, 30

PLAN = """\
service: support
strategy: weighted
release: {adapter: {source: ./adapters/v2}}
steps: [{weight: 10, soak: 15s}, {weight: 50, soak: 20s, manual: true}, {weight: 100, soak: 5s}]
guardrails: {min_requests: 10, interval: 2s, p99_ratio: 5, on_inconclusive: proceed}
reason: answers in two languages
"""

# The font comes from the reader's machine, and nothing from the network.
_FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def svg(scene: Scene, *, elapsed_s: float) -> str:
    """Return what a terminal shows of *scene*."""
    frame = Frame(
        columns=COLUMNS,
        lines=LINES,
        glyphs=UNICODE,
        elapsed_s=elapsed_s,
        figures=scene.figures,
    )
    with Path("/dev/null").open("w") as nowhere:
        console = Console(file=nowhere, record=True, width=COLUMNS, force_terminal=True)
        for line in rollout_picture(scene, frame):
            console.print(line, no_wrap=True, overflow="crop", highlight=False)
    return console.export_svg(
        title="vctl rollout watch",
        theme=SVG_EXPORT_THEME,
        code_format=_FORMAT,
        unique_id="vctl",
    )


def taken(fleet: Fleet, is_wanted: Callable[[Scene], bool]) -> Scene:
    """Return the first scene that is wanted."""

    async def first() -> Scene:
        keys = Keys(fleet.dev.options.fleet)
        settings = StoreSettings(endpoints=(fleet.dev.layout.endpoint,))
        store = open_store(settings)
        follow = Follow(SERVICE, fleet.rollout().id)
        try:
            async with asyncio.timeout(120), aclosing(scenes(store, keys, follow)) as stream:
                async for scene in stream:
                    if is_wanted(scene):
                        return scene
        finally:
            await store.close()
        raise AssertionError  # scenes have no end of their own

    return asyncio.run(first())


def is_judged(scene: Scene) -> bool:
    """Whether it soaks at its second step, and the guardrails have values."""
    is_there = scene.rollout.phase is P.SOAKING and scene.rollout.step == 1
    return is_there and bool(scene.figures) and all(figure.value for figure in scene.figures)


def main() -> None:
    """Write all pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, a_fleet(Path(folder), nodes=4) as fleet:
        first = str(fleet.adapter("v1"))
        assert fleet.vctl("rollout", "start", "--new-service", "--adapter", first).code == 0
        plan = fleet.adapter("v1").parents[1] / "plan.yaml"
        plan.write_text(PLAN)
        with Load(list(fleet.dev.gateway_urls.values()), max_tokens=2).running(each=3):
            assert fleet.vctl("rollout", "start", str(plan), "--no-watch").code == 0
            scene = taken(fleet, is_judged)
            (IMAGES / "live-soaking.svg").write_text(svg(scene, elapsed_s=scene.elapsed_s))
            scene = taken(fleet, lambda seen: seen.rollout.phase is P.PAUSED)
            (IMAGES / "live-paused.svg").write_text(svg(scene, elapsed_s=0.0))
        assert fleet.vctl("rollback", "--now", "--reason", "INC-4711").code == 0
        scene = taken(fleet, lambda seen: seen.rollout.phase is P.ROLLED_BACK)
        (IMAGES / "live-rolled-back.svg").write_text(svg(scene, elapsed_s=0.0))


if __name__ == "__main__":
    main()
