"""Hypothesis strategies that spoil good documents: their bytes, or what their JSON says."""

import json
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.seeds import WORDS

_DOUBLED = "\0doubled"
_MOST_CUTS = 4

numbers = st.one_of(
    st.sampled_from([0, -1, 1, 4, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, 10**400]),
    st.floats(),
    st.integers(-5, 40),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=4), st.sampled_from(WORDS)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=2), inner, max_size=3),
    ),
    max_leaves=6,
)


@st.composite
def spoiled_bytes(draw: st.DrawFn, good: bytes) -> bytes:
    """Cut, overwrite, repeat or insert bytes; turn bits; drop the end."""
    content = bytearray(good)
    for _ in range(draw(st.integers(1, _MOST_CUTS))):
        at = draw(st.integers(0, len(content)))
        end = min(len(content), at + draw(st.integers(0, 12)))
        match draw(st.integers(0, 4)):
            case 0:
                content[at:end] = draw(st.binary(max_size=12))
            case 1:
                content[at:end] = draw(st.sampled_from(WORDS)).encode()
            case 2:
                content[at:at] = content[at:end] * 2
            case 3:
                del content[at:]
            case _ if at < len(content):
                content[at] ^= 1 << draw(st.integers(0, 7))
    return bytes(content)


@st.composite
def spoiled_json(draw: st.DrawFn, good: bytes) -> bytes:
    """Replace, drop, rename, double or add a member somewhere in a document."""
    document = json.loads(good)
    for _ in range(draw(st.integers(1, 3))):
        document = _spoil(draw, document)
    text = json.dumps(document, ensure_ascii=draw(st.booleans()))
    return text.replace(json.dumps(_DOUBLED)[1:-1], "").encode(errors="surrogatepass")


def _spoil(draw: st.DrawFn, value: Any) -> Any:
    goes_deeper = bool(value) and isinstance(value, dict | list) and draw(st.integers(0, 9)) > 0
    if goes_deeper:
        return _spoil_object(draw, value) if isinstance(value, dict) else _spoil_list(draw, value)
    return draw(values)


def _spoil_object(draw: st.DrawFn, value: dict[str, Any]) -> dict[str, Any]:
    key = draw(st.sampled_from(sorted(value)))
    match draw(st.integers(0, 7)):
        case 0:
            return {k: v for k, v in value.items() if k != key}
        case 1:
            name = draw(st.sampled_from(WORDS) | st.text(max_size=3))
            return {name if k == key else k: v for k, v in value.items()}
        case 2:  # the mark is taken out of the text again: then the key is there twice
            return {**value, key + _DOUBLED: draw(values)}
        case 3:
            return {**value, draw(st.text(max_size=3)): draw(values)}
        case _:
            return {**value, key: _spoil(draw, value[key])}


def _spoil_list(draw: st.DrawFn, value: list[Any]) -> list[Any]:
    """Spoil one item, and double it or not."""
    at = draw(st.integers(0, len(value) - 1))
    return [*value[:at], _spoil(draw, value[at]), *value[at + draw(st.integers(0, 1)) :]]
