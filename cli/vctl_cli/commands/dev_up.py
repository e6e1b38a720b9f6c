"""`vctl dev up`: a whole fleet on this machine, in one foreground command."""

import time
from pathlib import Path
from typing import Annotated

import typer

from vctl_cli.dev import DevFleet
from vctl_cli.dev.fleet import LOOK_EVERY_S, end_on_signals
from vctl_cli.dev.layout import Options
from vctl_cli.exitcodes import ExitCode
from vctl_cli.render.screen import Screen
from vctl_cli.session import session_of

SAMPLE_ADAPTERS = {"v1": 101, "v2": 102, "v3": 103}


def up(
    ctx: typer.Context,
    *,
    nodes: Annotated[int, typer.Option(metavar="N", min=1, max=64, help="How many nodes.")] = 4,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--dir", metavar="DIR", help="The fleet's state. [default: ~/.local/state/vctl/dev]"
        ),
    ] = None,
    base_port: Annotated[
        int,
        typer.Option(
            metavar="PORT", min=0, max=60000, help="The first port; 0: any that are free."
        ),
    ] = 0,
    allow: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="Where else adapters may lie.")
    ] = None,
) -> ExitCode:
    """Run etcd and a fleet on this machine until Ctrl-C.

    Each node is three processes: the torch engine, the gateway and the agent. State and logs are
    kept in --dir. Agents read adapters below --dir, --allow and the working directory.
    """
    session = session_of(ctx)
    options = Options(nodes=nodes, base_port=base_port, fleet=session.shared.fleet or "dev")
    fleet = DevFleet(
        folder or session.world.state_path / "dev",
        options,
        env=session.world.env,
        allowed_roots=[Path.cwd(), *(allow or [])],
        say=session.screen.say,
    )
    run(fleet, session.screen)
    return ExitCode.DONE


def run(fleet: DevFleet, screen: Screen) -> None:
    """Run *fleet* until a signal; tell of programs that end by themselves."""
    end_on_signals()
    try:
        with fleet:
            fleet.begin()
            fleet.models.make_adapters(SAMPLE_ADAPTERS)
            fleet.wait_ready()
            screen.data(welcome(fleet))
            while True:
                for program in fleet.newly_dead():
                    screen.complain(f"vctl: {program.death()}\n  {program.log_tail()}")
                time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        screen.say("ended")


def welcome(fleet: DevFleet) -> str:
    """Return how to use the fleet, to be copied into another terminal."""
    variables = " ".join(f"{name}={value}" for name, value in fleet.environment.items())
    gateway = next(iter(fleet.gateway_urls.values()))
    body = '{"model": "support", "prompt": "Hello", "max_tokens": 16}'
    adapter = fleet.models.adapter(next(iter(SAMPLE_ADAPTERS)))
    return "\n".join(
        [
            f"the fleet runs: {len(fleet.nodes)} nodes; Ctrl-C ends it. In another terminal:",
            "",
            f"  export {variables} VCTL_SERVICE=support",
            f"  vctl rollout start --new-service --adapter {adapter}",
            "  vctl status",
            f"  curl -s {gateway}/v1/completions -H 'content-type: application/json' -d '{body}'",
            "",
            f"adapters  {', '.join(str(fleet.models.adapter(n)) for n in SAMPLE_ADAPTERS)}",
            f"logs      {fleet.folder / 'logs'}",
        ]
    )
