"""What a source's URI may be: a plain place, and never a secret."""

import pytest

from vctl_plans import location
from vctl_plans.errors import PlanError


@pytest.mark.parametrize(
    "uri",
    [
        "file:///mnt/models/v8",
        "file://localhost/mnt/a%20b",
        "https://models.example/v8/",
        "http://10.0.0.1:8080/v8",
        "s3://bucket/models/v8",
        "s3://bucket",
        "hf://org/repo",
        "hf://org/repo@main/folder",
        "hf://org/repo@refs%2Fpr%2F1",
    ],
)
def test_places_are_taken(uri: str) -> None:
    assert uri == location.checked(uri).geturl()


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("/plain/path", "none of"),
        ("ftp://host/v8", "none of"),
        ("file://far/v1", "absolute path"),
        ("https:///v8", "no host"),
        ("s3:///v8", "no bucket"),
        ("s3://bucket:80/v8", "port"),
        ("hf://org", "no repository"),
        ("https://models.example/a/../b", "step"),
        ("https://models.example/a/%2e%2e/b", "step"),
        ("https://models.example/a%00b", "cannot be shown"),
        ("https://models.example:port/a", "not an address"),
    ],
)
def test_others_are_refused(uri: str, why: str) -> None:
    with pytest.raises(PlanError, match=why) as caught:
        location.checked(uri, field="release.adapter.source")
    assert "release.adapter.source" == caught.value.path


@pytest.mark.parametrize(
    "uri",
    [
        "https://ann:hunter2@models.example/v8",
        "https://hunter2@models.example/v8",
        "https://models.example/v8?sig=hunter2",
        "https://models.example/v8#hunter2",
        "s3://key:hunter2@bucket/v8",
        "hf://hunter2@org/repo",
    ],
)
def test_secret_is_refused_and_not_repeated(uri: str) -> None:
    with pytest.raises(PlanError) as caught:
        location.checked(uri)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "prefix", "expected"),
    [
        ("https://models.example/v8", "https://models.example", True),
        ("https://models.example/v8", "https://models.example/", True),
        ("https://MODELS.example/v8", "https://models.example/v8", True),
        ("https://models.example.org/v8", "https://models.example", False),
        ("https://models.example/v80", "https://models.example/v8", False),
        ("https://models.example/v8@x", "https://models.example/v8", False),
        ("http://models.example/v8", "https://models.example", False),
        ("https://models.example:444/v8", "https://models.example", False),
        ("https://anything.example/v8", "https://", True),
        ("s3://bucket/a/b", "s3://bucket/a", True),
        ("s3://bucket-2/a/b", "s3://bucket", False),
        ("hf://org/repo@0123/f", "hf://org/repo", True),
        ("hf://org/repo2@0123/f", "hf://org/repo", False),
        ("hf://org/repo@0123/f", "hf://org", True),
    ],
)
def test_prefix_ends_where_a_name_ends(uri: str, prefix: str, expected: bool) -> None:
    assert expected == location.is_under(uri, prefix)


def test_parts_of_the_hub() -> None:
    parts = location.checked("hf://org/repo@refs%2Fpr%2F1/a/b/")
    assert ("model", "org/repo", "refs/pr/1", "a/b") == location.hub_parts(parts)
    parts = location.checked("hf://datasets/org/index")
    assert ("dataset", "org/index", "", "") == location.hub_parts(parts)
