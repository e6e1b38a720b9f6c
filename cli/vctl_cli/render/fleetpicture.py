"""The whole fleet as a picture: its services, those that move first, and its nodes by phase."""

from collections.abc import Sequence

from rich.text import Text

from vctl_cli.render.fitting import bar, cut, wrapped
from vctl_cli.render.nodegrid import BAD, BUSY, GOOD, Group, grid, grouped, well
from vctl_cli.render.nodegrid import counted as counted_groups
from vctl_cli.render.picture import Frame
from vctl_cli.render.table import service_phase, warnings
from vctl_cli.summing import Counts, SummaryView
from vctl_plans.held import pins_text
from vctl_plans.phase import RolloutPhase
from vctl_plans.share import FULL_WEIGHT
from vctl_plans.status import ServiceStatus, StatusView
from vctl_plans.summary import ServiceSummary

_BAR_CELLS = 10
_AT_REST = {"", RolloutPhase.CONVERGED, RolloutPhase.ROLLED_BACK, RolloutPhase.SUPERSEDED}
_LINES_OF_ONE = 2  # of a service's last decision
_LEAST_NODES = 4  # lines


def fleet_picture(view: StatusView | SummaryView, frame: Frame) -> list[Text]:
    """Return the picture's lines; what does not fit is left out from the end of each part."""
    title = Text(f"fleet {view.fleet}", style="bold")
    bad = [Text(text, style=BAD) for text in warnings(view)]
    services = _services(view.services, frame)
    room = max(1, frame.lines - len(bad) - 2 - _LEAST_NODES)
    shown = services[:room]
    if len(services) > room:
        shown[-1] = Text(f"and more: vctl status shows all {len(view.services)}", style="dim")
    left = frame.lines - len(shown) - len(bad) - 2
    nodes = _nodes(view, frame, lines=max(1, left))
    lines = [title, *bad, *shown, Text(), *nodes]
    return [cut(line, frame.columns, frame.glyphs) for line in lines][: frame.lines]


def _services(services: Sequence[ServiceStatus], frame: Frame) -> list[Text]:
    if not services:
        return [Text("no service")]
    found: list[Text] = []
    width = max(len(each.service) for each in services)
    for each in sorted(services, key=lambda s: (s.phase in _AT_REST, s.service)):
        found += _service(each, width, frame)
    return found


def _service(service: ServiceStatus, width: int, frame: Frame) -> list[Text]:
    arrow, phase = frame.glyphs.arrow, service_phase(service)
    release = str(service.release or "none")
    if service.target and service.target != service.release:
        release = f"{release} {arrow} {service.target}"
    line = Text().append(f"{service.service.ljust(width)}  ", style="bold")
    line.append(f"release {release}  ")
    weight = service.weight if service.candidate else FULL_WEIGHT
    serving = service.candidate or service.release
    if serving:
        line.append(bar(weight / FULL_WEIGHT, _BAR_CELLS, frame.glyphs), style="cyan")
        line.append(f" {weight:g} % on {serving}  ")
    line.append(phase, style=_style(service.phase))
    counts = f"  ready {service.ready}/{service.nodes}, route {service.acting}/{service.nodes}"
    lines = [line.append(counts, style="dim")]
    indent = Text(" " * (width + 2))
    sessions = pins_text(service.pins) if service.pins else ""
    for said in (service.sentence, *service.notes, sessions):
        if said:
            lines += wrapped(
                Text(said, style="dim"),
                frame.columns,
                lines=_LINES_OF_ONE,
                glyphs=frame.glyphs,
                lead=indent,
            )
    return lines


def _style(phase: str) -> str:
    if phase == RolloutPhase.FAILED:
        return f"bold {BAD}"
    return GOOD if phase in _AT_REST else f"bold {BUSY}"


def _nodes(view: StatusView | SummaryView, frame: Frame, *, lines: int) -> list[Text]:
    if isinstance(view, StatusView):
        groups = grouped((node.node, node.phase, node.reason) for node in view.nodes)
        return _block("nodes", groups, frame, lines=lines)
    if not view.is_there:
        return []
    found: list[Text] = []
    for counts in view.counts:
        left = lines - len(found)
        if left > 1:
            groups = counted_groups(_summary(counts))
            found += _block(f"nodes of {counts.service}", groups, frame, lines=left)
    return found


def _summary(counts: Counts) -> ServiceSummary:
    return ServiceSummary(service=counts.service, phases=counts.phases, worst=counts.worst)


def _block(label: str, groups: tuple[Group, ...], frame: Frame, *, lines: int) -> list[Text]:
    head = Text().append(f"{label}  ", style="dim").append(well(groups))
    return [head, *grid(groups, frame.columns, lines=lines - 1, glyphs=frame.glyphs)]
