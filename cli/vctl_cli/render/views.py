"""Which view fits where stdout goes: a picture, lines, sections of a CI's log, or documents."""

from vctl_cli.options import Output
from vctl_cli.render.lines import Lines, View, Write, as_json, as_yaml, plain
from vctl_cli.session import Session


def is_drawn(session: Session) -> bool:
    """Whether a person sees a picture, which says what else would have to be told."""
    is_table = session.output is Output.TABLE
    return is_table and session.screen.can_draw and not session.shared.quiet


def view_of(session: Session, *, since: int) -> View:
    """Return the view of a rollout; decisions before *since* were made earlier."""
    if is_drawn(session):
        from vctl_cli.render.live import LiveView  # noqa: PLC0415  rich costs time

        return LiveView(session.screen)
    is_quiet, now = session.shared.quiet, session.world.now
    if session.output is Output.TABLE and not is_quiet:
        from vctl_cli.render.ci import folded  # noqa: PLC0415  not for a picture

        folds = folded(session.world.env, session.screen)
        if folds:
            return Lines(folds.write, now, is_quiet=False, since=since, close=folds.close)
    return Lines(_write(session), now, is_quiet=is_quiet, since=since)


def _write(session: Session) -> Write:
    forms = {Output.JSON: as_json, Output.YAML: as_yaml, Output.TABLE: plain}
    return forms[session.output](session.screen)
