"""A test report in JUnit's XML, as CI systems read it.

There is no standard; this is what Jenkins' schema (jenkinsci/xunit-plugin, junit-10.xsd) and GitLab
(docs.gitlab.com/ci/testing/unit_test_reports) accept.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from vctl_cli.render.stages import Stage
from vctl_plans.errors import PlanError

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAGS = {"failed": "failure", "error": "error", "skipped": "skipped"}


def junit_text(suite: str, stages: Sequence[Stage], *, output: str = "") -> str:
    """Return the report.

    Args:
        suite: What was tested.
        stages: Its cases.
        output: What was said meanwhile, line by line.
    """
    counts = {
        "tests": len(stages),
        "failures": sum(stage.outcome == "failed" for stage in stages),
        "errors": sum(stage.outcome == "error" for stage in stages),
        "skipped": sum(stage.outcome == "skipped" for stage in stages),
    }
    known = {name: str(count) for name, count in counts.items()}
    time = f"{sum(stage.seconds for stage in stages):.3f}"
    root = ET.Element("testsuites", {"name": "vctl", "time": time, **known})
    node = ET.SubElement(root, "testsuite", {"name": _clean(suite), "time": time, **known})
    for stage in stages:
        _case(node, suite, stage)
    if output:
        ET.SubElement(node, "system-out").text = _clean(output)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _case(suite: ET.Element, name: str, stage: Stage) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        classname=_clean(name),
        name=_clean(stage.name),
        time=f"{stage.seconds:.3f}",
    )
    tag = _TAGS.get(stage.outcome)
    if tag:
        found = ET.SubElement(case, tag, message=_clean(stage.text or "not tried"))
        found.text = _clean(stage.text) or None


def _clean(text: str) -> str:
    """Return *text* without what no XML document may hold, escaped or not."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def write_junit(path: Path, text: str) -> None:
    """Write a report; its folder is made.

    Raises:
        PlanError: It cannot be written there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as cause:
        hint = "name a file that this user may write"
        raise PlanError(f"{path}: {cause.strerror}", path="--junit", hint=hint) from cause
