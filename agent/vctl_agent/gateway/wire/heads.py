"""Header fields as they came, each set of them read once.

A client sends the same fields with each request, and an engine with each answer, but for a few.
Those few (`VARYING`) are kept apart, and what is worked out of the others is kept with them. The
parser has checked every message all the same: only what follows from its fields is remembered.
"""

from vctl_agent.gateway.wire.fields import Fields, text

OWN_PREFIX = "x-vctl-"
"""What the names of vctl's own fields begin with."""

MAX_KEPT = 256
"""Sets of each of two generations that are kept; the older one goes when the newer is full."""

MAX_KEPT_BYTES = 4096
"""A larger set is read each time, so that what is kept is bounded in bytes as well."""


class Head:
    """A set of fields, and what follows from it. Shared: nobody changes its fields."""

    __slots__ = (
        "content_type",
        "expects",
        "fields",
        "has_coding",
        "has_own",
        "hosts",
        "is_chunked",
        "is_encoded",
        "passed",
    )

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        self.has_own = any(name.lower().startswith(OWN_PREFIX) for name in fields)
        self.hosts = len(fields.getall("host", ()))
        self.expects = fields.get("expect", "").lower() == "100-continue"
        self.has_coding = "transfer-encoding" in fields
        self.is_chunked = fields.get("transfer-encoding", "").strip().lower() == "chunked"
        self.is_encoded = "content-encoding" in fields
        # The media type, without parameters, in lower case.
        self.content_type = fields.get("content-type", "").partition(";")[0].strip().lower()
        self.passed: bytes | None = None  # the lines to pass on, once `headers` has written them


NO_HEAD = Head(Fields())


class Heads:
    """The sets that came lately."""

    def __init__(self) -> None:
        self._newer: dict[tuple[bytes, ...], Head] = {}
        self._older: dict[tuple[bytes, ...], Head] = {}

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._newer) + len(self._older)

    def of(self, raw: list[bytes]) -> Head:
        """Return the set of *raw*: name, value, name, value, and so on, in the order they came."""
        key = tuple(raw)
        head = self._newer.get(key)
        if head is not None:
            return head
        head = self._older.get(key) or _read(key)
        if sum(map(len, key)) <= MAX_KEPT_BYTES:
            if len(self._newer) >= MAX_KEPT:
                self._older, self._newer = self._newer, {}
            self._newer[key] = head
        return head


def _read(raw: tuple[bytes, ...]) -> Head:
    return Head(Fields(zip(map(text, raw[::2]), map(text, raw[1::2]), strict=True)))
