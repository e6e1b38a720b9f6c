"""The table of exit codes, the codes themselves and the tests that produce them agree."""

import ast
from pathlib import Path

from tests.e2e.cli.exitcodetable import rows
from vctl_cli.exitcodes import ExitCode

TESTS = Path(__file__).parents[1] / "e2e" / "cli" / "test_exit_codes.py"


def functions() -> list[str]:
    tree = ast.parse(TESTS.read_text(encoding="utf-8"))
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [name for name in names if name.startswith("test_")]


def test_every_code_is_in_the_table_in_order():
    assert list(dict.fromkeys(row.code for row in rows())) == sorted(int(c) for c in ExitCode)


def test_every_line_has_a_test_that_is_named_by_its_code_and_no_test_is_left():
    assert [row.test for row in rows()] == functions()
    for row in rows():
        assert row.test.startswith(f"test_exit_{row.code}_")


def test_every_test_of_a_code_asserts_it():
    source = TESTS.read_text(encoding="utf-8")
    for row in rows():
        body = source.partition(f"def {row.test}(")[2].partition("\ndef ")[0]
        both = f"(said.code, said.out) == ({row.code},"
        assert f"said.code == {row.code}," in body or both in body
