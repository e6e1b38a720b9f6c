"""The page of `rollout show --html`: whole, by itself, and as a browser draws it."""

import re
import shutil
import struct
import subprocess
import zlib
from collections import Counter
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.cli.recounted import a_record
from vctl_cli.recounting import RolloutRecord
from vctl_cli.render import svg, timeline
from vctl_cli.render.report import page
from vctl_plans.phase import RolloutPhase as P

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)

RECORDS = {
    "converged": a_record(),
    "rolled back": a_record(ends=P.ROLLED_BACK),
    "large": a_record(nodes=400),
    "running, without guardrails": a_record(is_running=True, has_windows=False),
}

SECTIONS = [
    "Traffic by release",
    "Nodes that hold each release ready",
    "Requests that failed",
    "99th percentile of latency",
    "When nodes had followed",
    "Decisions",
    "Releases",
    "Plan",
    "Nodes",
]


def parsed(record: RolloutRecord) -> ET.Element:
    """Return the page's elements, without namespaces."""
    text = (
        page(record)
        .replace("<!DOCTYPE html>", "")
        .replace(' xmlns="http://www.w3.org/2000/svg"', "")
    )
    return ET.fromstring(text)  # noqa: S314  our own


def words(element: ET.Element) -> str:
    return " ".join("".join(element.itertext()).split())


@pytest.mark.parametrize("name", RECORDS)
def test_page_is_well_formed_and_complete(name: str):
    record = RECORDS[name]
    root = parsed(record)
    assert SECTIONS == [each.text for each in root.iter("h2")]
    said = words(root)
    assert all(moment.entry.sentence in said for moment in record.decisions)
    assert all(release.vector_text for release in record.releases)
    assert all(made.root in said for r in record.releases for made in r.components.values())
    assert record.rollout.id in said
    assert "by ann@desk https://ci.example/jobs/7: <i>better</i>" in said
    assert len(record.decisions) == len(root.findall(".//section[6]//tbody/tr"))


@pytest.mark.parametrize("name", RECORDS)
def test_page_needs_nothing_of_elsewhere(name: str):
    root = parsed(RECORDS[name])
    assert not {"script", "link", "img", "iframe", "image", "use", "a"} & {
        e.tag for e in root.iter()
    }
    assert not {key for each in root.iter() for key in each.attrib if key in {"src", "href"}}
    style = root.find(".//style")
    assert style is not None
    assert not re.search(r"url\(|@import|@font-face", style.text or "")


@pytest.mark.parametrize("name", RECORDS)
def test_everything_that_is_drawn_lies_in_its_picture(name: str):
    for picture in parsed(RECORDS[name]).iter("svg"):
        width, height = map(float, picture.attrib["viewBox"].split()[2:])
        places = [
            tuple(map(float, pair.split(",")))
            for each in picture.iter()
            for pair in each.attrib.get("points", "").split()
        ]
        places += [
            (float(each.attrib["cx"]), float(each.attrib["cy"])) for each in picture.iter("circle")
        ]
        assert all(0 <= x <= width and 0 <= y <= height for x, y in places)
        assert picture.attrib["aria-label"]


def test_areas_of_traffic_are_whole_at_each_time():
    levels = timeline.shares(RECORDS["converged"])
    assert [100.0] * len(levels) == [sum(level.values.values()) for level in levels]
    assert {1: 90.0, 2: 10.0} == levels[1].values
    assert {2: 100.0} == levels[-1].values


def test_windows_stand_where_they_were_counted():
    found = timeline.counted(RECORDS["converged"])
    assert {1, 2} == set(found)
    first = found[2][0]
    began = RECORDS["converged"].decisions[2].at_s
    assert (began, began + 30.0) == pytest.approx((first.since_s, first.until_s))
    assert 400 == first.rate.requests


def test_breach_is_the_highest_point_of_the_failures():
    rates = [each.rate.error_rate or 0.0 for each in timeline.counted(RECORDS["rolled back"])[2]]
    assert max(rates) == rates[-1] > 0.05


def test_every_node_of_a_small_fleet_has_its_row_and_its_dots():
    section = parsed(RECORDS["converged"]).findall(".//section")[4]
    titles = [title.text or "" for title in section.iter("title")]
    for node in RECORDS["converged"].nodes:
        followed = {"ready", "10 %", "50 %", "100 %", "settled"}
        assert followed == {t.split(": ")[1].split(" after")[0] for t in titles if f"{node}: " in t}


def test_large_fleet_is_drawn_as_counts_with_its_slowest_named():
    section = parsed(RECORDS["large"]).findall(".//section")[4]
    assert not list(section.iter("circle"))
    assert "ready: gpu-399 1m15s" in words(section)
    assert "ready: 400 nodes within 1m15s" in words(section)
    assert len(page(RECORDS["large"])) < 60_000


def test_what_is_not_known_is_said():
    said = words(parsed(RECORDS["running, without guardrails"]))
    assert 2 == said.count(
        "Nothing to show: its plan has no guardrails, and gateways count for those."
    )


@pytest.mark.parametrize(
    ("end_s", "apart"), [(0.5, None), (7.0, 1), (59.0, 10), (690.0, 120), (86400.0, 10800)]
)
def test_ticks_are_round_and_few(end_s: float, apart: float | None):
    found = svg.ticks(end_s)
    assert 2 <= len(found) <= 9
    assert found[-1] <= end_s * 1.001
    if apart:
        assert apart == found[1] - found[0]


def test_names_of_lines_never_lie_over_each_other():
    frame = svg.Frame(10.0, 100.0)
    places = [float(y) for y in re.findall(r' y="([\d.-]+)"', svg.names(frame, [
        (50.0, "a", "old"), (50.0, "b", "new"), (51.0, "c", "third"), (0.0, "d", "old"),
    ]))]  # fmt: skip
    ordered = sorted(places)
    assert all(after - before >= 14 for before, after in pairwise(ordered))


def pixels(png: bytes) -> Counter[bytes]:
    """Return how often each colour occurs (PNG specification, 3rd edition, sections 9 and 11)."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert (8, True) == (depth, kind in {2, 6})
    size = 3 if kind == 2 else 4
    at, packed = 8, b""
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        packed += png[at + 8 : at + 8 + length] if png[at + 4 : at + 8] == b"IDAT" else b""
        at += 12 + length
    data, above, found = zlib.decompress(packed), bytearray(width * size), Counter[bytes]()
    for row in range(height):
        start = row * (width * size + 1)
        line = unfiltered(
            data[start], bytearray(data[start + 1 : start + 1 + width * size]), above, size
        )
        found.update(bytes(line[n : n + 3]) for n in range(0, len(line), size))
        above = line
    return found


def unfiltered(kind: int, line: bytearray, above: bytearray, size: int) -> bytearray:
    for n in range(len(line)):
        left = line[n - size] if n >= size else 0
        corner = above[n - size] if n >= size else 0
        guess = left + above[n] - corner
        near = min((left, above[n], corner), key=lambda each: abs(guess - each))
        line[n] = (line[n] + (0, left, above[n], (left + above[n]) // 2, near)[kind]) % 256
    return line


@pytest.mark.skipif(not BROWSER, reason="no Chromium is installed; what it draws is checked above")
@pytest.mark.timeout(120)
def test_browser_draws_the_page_by_day_and_by_night(tmp_path: Path):
    place = tmp_path / "page.html"
    place.write_text(page(RECORDS["rolled back"]))
    by_day, by_night = (shot(place, tmp_path / f"{n}.png", scheme=n) for n in (1, 0))
    assert by_day.most_common(1)[0][0] == bytes.fromhex("ffffff")
    assert by_night.most_common(1)[0][0] == bytes.fromhex("11161c")
    for colour, found in (("4a72a8", by_day), ("cf6a0a", by_day), ("7ea6d8", by_night)):
        assert found[bytes.fromhex(colour)] > 100, f"lines of {colour} are drawn"
    assert len(by_day) > 50


def shot(place: Path, picture: Path, *, scheme: int) -> Counter[bytes]:
    """Return the colours of the page as a browser shows it; *scheme* 0 is dark, 1 is light."""
    assert BROWSER
    subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={place.parent / 'profile'}",
            f"--blink-settings=preferredColorScheme={scheme}", "--window-size=800,900",
            f"--screenshot={picture}", place.as_uri(),
        ],
        check=True, capture_output=True, timeout=100,
    )  # fmt: skip
    return pixels(picture.read_bytes())
