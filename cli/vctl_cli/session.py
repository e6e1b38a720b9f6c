"""One command's run: its surroundings, the options that all commands share, and what follows."""

import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import typer

from vctl_cli.options import Output, Shared
from vctl_cli.render.screen import Screen, has_unicode, is_drawable
from vctl_cli.world import World

if TYPE_CHECKING:
    from vctl_cli.context import Target
    from vctl_cli.patience import Patience
    from vctl_plans.operate import Request
    from vctl_plans.store.port import Store

T = TypeVar("T")

NOTHING_GIVEN = Shared()


@dataclass(frozen=True)
class Session:
    """What a command function gets as `ctx.obj`."""

    world: World
    shared: Shared = NOTHING_GIVEN

    def refined(self, nearer: Shared) -> "Session":
        """Return the session with the options that stand nearer to the verb's end."""
        return replace(self, shared=self.shared.refined(nearer))

    @cached_property
    def target(self) -> "Target":
        """Where the command acts."""
        from vctl_cli.context import resolve  # noqa: PLC0415  not all commands act on a fleet

        return resolve(self.shared, self.world.env, self.world.config_path)

    @property
    def output(self) -> Output:
        """The form of stdout."""
        return self.shared.output or Output.TABLE

    @property
    def screen(self) -> Screen:
        """Where the command writes."""
        return Screen(
            self.world.out,
            self.world.err,
            is_quiet=self.shared.quiet,
            has_color=not self.world.env.get("NO_COLOR"),
            has_unicode=has_unicode(self.world.out, self.world.env),
            can_draw=is_drawable(self.world.out, self.world.env),
        )

    def service(self, given: str) -> str:
        """Return the service that the command is about.

        Raises:
            PlanError: Nothing names one.
        """
        from vctl_cli.context import required_service  # noqa: PLC0415

        return required_service(given, self.target)

    def request(self, reason: str) -> "Request":
        """Return who asks, under a new id."""
        import secrets  # noqa: PLC0415

        from vctl_plans.operate import Request  # noqa: PLC0415
        from vctl_plans.release import Actor  # noqa: PLC0415

        by = Actor(
            user=_user(self.world.env), host=socket.gethostname(), via=_ci_url(self.world.env)
        )
        stamp = f"{self.world.now():%Y%m%d-%H%M%S}"
        return Request(id=f"{stamp}-{secrets.token_hex(3)}", by=by, reason=reason)

    def run(self, act: "Callable[[Store], Awaitable[T]]") -> T:
        """Run *act* with an open store, to its end."""
        import asyncio  # noqa: PLC0415

        async def run() -> T:
            async with self._store() as store:
                return await act(store)

        return asyncio.run(run())

    @cached_property
    def patience(self) -> "Patience":
        """What tells, once, that etcd does not answer."""
        from vctl_cli.patience import Patience  # noqa: PLC0415  not all commands ask etcd

        return Patience(", ".join(self.target.settings.endpoints), self.screen.say)

    @asynccontextmanager
    async def _store(self) -> "AsyncIterator[Store]":
        from vctl_cli.patience import PatientStore  # noqa: PLC0415  see above

        store = self.world.open_store(self.target.settings)
        try:
            yield PatientStore(store, self.patience)
        finally:
            await store.close()

    def ask(self, what: str, *, default: str, choices: Collection[str] = ()) -> str:
        """Ask a person at a terminal; scripts and `--yes` get the default."""
        if self.shared.yes or not (self.world.stdin.isatty() and self.world.err.isatty()):
            return default
        while True:
            said: str = typer.prompt(what, default=default, err=True)
            if not choices or said in choices:
                return said
            self.screen.complain(f"one of {', '.join(choices)}")

    def confirm(self, question: str) -> None:
        """Ask a person at a terminal; scripts and `--yes` are not asked.

        Typer's own question takes Ctrl-C for a no, and it is none: who interrupts gets 130.

        Raises:
            typer.Abort: The person said no, or nothing.
            KeyboardInterrupt: They interrupted.
        """
        if self.shared.yes or not (self.world.stdin.isatty() and self.world.err.isatty()):
            return
        self.world.err.write(f"{question} [y/N]: ")
        self.world.err.flush()
        try:
            answer = self.world.stdin.readline()
        except KeyboardInterrupt:
            self.world.err.write("\n")
            raise
        if answer.strip().lower() not in {"y", "yes"}:
            raise typer.Abort


def session_of(ctx: typer.Context) -> Session:
    """Return the session of a running command."""
    session: Session = ctx.obj
    return session


def _user(env: Mapping[str, str]) -> str:
    """Return the person's name on this host: also behind sudo, and where no login set it."""
    named = env.get("SUDO_USER") or env.get("LOGNAME") or env.get("USER")
    if named:
        return named
    import pwd  # noqa: PLC0415  seldom asked

    with suppress(KeyError):  # a container's user may have no name
        return pwd.getpwuid(os.getuid()).pw_name
    return ""


def _ci_url(env: Mapping[str, str]) -> str:
    """Return the page of the CI job that runs this, as GitHub and GitLab tell it."""
    if env.get("GITHUB_RUN_ID"):
        base = f"{env.get('GITHUB_SERVER_URL', '')}/{env.get('GITHUB_REPOSITORY', '')}"
        return f"{base}/actions/runs/{env['GITHUB_RUN_ID']}"
    return env.get("CI_JOB_URL", "")
