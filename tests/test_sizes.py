"""What is written down of the code's sizes holds: of modules, functions, and what functions take.

A Typer command lists each of its options as a parameter: it is measured without its signature.
"""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("cli", "agent", "plans", "bench", "examples")

MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 60
MOST_PARAMETERS = 6
MOST_BY_PLACE = 4
"""Parameters that may be given without their names; two is the rule, and these are still read."""

_WIRES = "wires a part with its neighbours, each by its name"
_OPTIONS = "options with defaults, each by its name"
MANY_PARAMETERS = {
    "agent/vctl_agent/alerting/outbox.py:Outbox.__init__": _WIRES,
    "agent/vctl_agent/conductor.py:Conductor.__init__": _WIRES,
    "agent/vctl_agent/executor.py:Executor.__init__": _WIRES,
    "agent/vctl_agent/reconciler.py:Reconciler.__init__": _WIRES,
    "agent/vctl_agent/gateway/hopsender.py:HopSender.__init__": _WIRES,
    "agent/vctl_agent/gateway/proxy.py:Proxy.__init__": _WIRES,
    "agent/vctl_agent/gateway/serving.py:Serving.__init__": _WIRES,
    "cli/vctl_cli/asking.py:ask_nodes": _OPTIONS,
    "cli/vctl_cli/fleetcollect.py:collect_fleet": _OPTIONS,
    "cli/vctl_cli/options.py:shared": "declares options for Typer",
    "cli/vctl_cli/planflags.py:plan_flags": "declares options for Typer",
    "plans/vctl_plans/foresight.py:foresee": _OPTIONS,
    "plans/vctl_plans/operate.py:start": _OPTIONS,
    "plans/vctl_plans/release.py:compose": _OPTIONS,
    "plans/vctl_plans/weights/proof.py:verify_tensor": _OPTIONS,
    "plans/vctl_plans/weights/scan.py:scan": _OPTIONS,
    "plans/vctl_plans/weights/ulp.py:compare": _OPTIONS,
    "plans/vctl_plans/weights/verify.py:verify": _OPTIONS,
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _modules(*rooms: str) -> Iterator[tuple[str, str]]:
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


@functools.cache
def _functions(where: str, text: str) -> tuple[tuple[str, Function], ...]:
    """Return every function with its place, as in ``cli/x.py:Class.method``."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            name = (
                f"{prefix}{child.name}." if isinstance(child, Function | ast.ClassDef) else prefix
            )
            if isinstance(child, Function):
                yield f"{where}:{name[:-1]}", child
            yield from walk(child, name)

    return tuple(walk(ast.parse(text), ""))


def _is_command(function: Function) -> bool:
    """Whether Typer calls it, with an option for each parameter."""
    marks = [ast.unparse(each) for each in function.decorator_list]
    notes = [ast.unparse(a.annotation) for a in function.args.args if a.annotation]
    return "typer.Context" in notes or any(".command(" in mark for mark in marks)


def _lines(function: Function) -> int:
    begin = function.body[0].lineno if _is_command(function) else function.lineno
    return (function.end_lineno or begin) - begin + 1


def _by_place(function: Function) -> list[str]:
    given = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    return given[1:] if given[:1] in (["self"], ["cls"]) else given


def _count(function: Function) -> int:
    return len(_by_place(function)) + len(function.args.kwonlyargs)


def too_long(where: str, text: str) -> list[str]:
    """Return what is too long in one module."""
    lines = len(text.splitlines())
    found = [f"{where} has {lines} lines"] if lines > MOST_LINES else []
    return found + [
        f"{place} has {_lines(function)} lines"
        for place, function in _functions(where, text)
        if _lines(function) > MOST_LINES_OF_A_FUNCTION
    ]


def too_many(where: str, text: str) -> list[str]:
    """Return the functions of one module that take too much, or too much without a name."""
    found = []
    for place, function in _functions(where, text):
        if _is_command(function):
            continue
        by_place = len(_by_place(function))
        count = _count(function)
        if count > MOST_PARAMETERS and place not in MANY_PARAMETERS:
            found.append(f"{place} has {count} parameters: group them in a struct")
        if by_place > MOST_BY_PLACE:
            found.append(f"{place} takes {by_place} without their names: put a * before the last")
    return found


def test_no_module_and_no_function_is_too_long() -> None:
    assert [] == [said for where, text in _modules(*ROOMS) for said in too_long(where, text)]


def test_no_function_that_tests_stand_on_is_too_long() -> None:
    """A file is as long as what it stands in for asks for."""
    support = [(where, text) for where, text in _modules("tests") if "/test_" not in where]
    found = [said for where, text in support for said in too_long(where, text)]

    assert [] == [said for said in found if ":" in said]


def test_no_function_takes_too_much() -> None:
    assert [] == [said for where, text in _modules(*ROOMS) for said in too_many(where, text)]


def test_no_exception_is_made_that_nothing_needs() -> None:
    counts = {
        place: _count(function)
        for where, text in _modules(*ROOMS)
        for place, function in _functions(where, text)
    }

    assert [] == [place for place in MANY_PARAMETERS if counts.get(place, 0) <= MOST_PARAMETERS]


def test_every_broad_except_says_why() -> None:
    """Beside it: what it catches ends there on purpose, or is raised again."""
    found = [
        f"{where}:{number}"
        for where, text in _modules(*ROOMS)
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip().startswith(("except Exception", "except BaseException", "except:"))
        and len(line.partition("#")[2].replace("noqa: BLE001", "").strip()) < len("top of it")
    ]

    assert [] == found


LONG = "def f():\n" + "    pass\n" * 60


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pass\n" * 400, []),
        ("pass\n" * 401, ["m.py has 401 lines"]),
        (LONG, ["m.py:f has 61 lines"]),
        (LONG.removesuffix("    pass\n"), []),
        ("class A:\n    async " + LONG.replace("    ", "        "), ["m.py:A.f has 61 lines"]),
    ],
)
def test_what_is_too_long_is_seen(text: str, said: list[str]) -> None:
    assert said == too_long("m.py", text)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("def f(self, a, b, c, d): ...", 0),
        ("def f(a, b, c, d, e): ...", 1),
        ("def f(a, *, b, c, d, e, g): ...", 0),
        ("def f(a, *, b, c, d, e, g, h): ...", 1),
        ("def f(ctx: typer.Context, a, *, b, c, d, e, g, h): ...", 0),
    ],
)
def test_what_is_too_much_is_seen(text: str, count: int) -> None:
    assert count == len(too_many("m.py", text))
