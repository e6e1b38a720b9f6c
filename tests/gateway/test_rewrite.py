import json
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.support import event
from vctl_agent.gateway import rewrite
from vctl_agent.gateway.rewrite import EventStream, ModelName

ENGINE = "support@5e5e5e5e5e5e"
NAME = ModelName(ENGINE, "support")


def pieces(text: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in pairwise(at)]


def passed(chunks: list[bytes]) -> bytes:
    stream = EventStream(NAME)
    return b"".join([*(stream.feed(chunk) for chunk in chunks), stream.end()])


def test_body_gets_the_public_name_and_keeps_every_other_byte():
    body = (
        b'{"big": 123456789012345678901234567890, "model": "%s", "x": [1.0,  2]}' % ENGINE.encode()
    )
    assert NAME.restored(body) == (
        b'{"big":123456789012345678901234567890,"model":"support","x":[1.0,  2]}'
    )


def test_model_named_in_contents_is_left_alone():
    body = json.dumps({"model": ENGINE, "text": f'"model":"{ENGINE}"'}).encode()
    assert json.loads(NAME.restored(body)) == {
        "model": "support",
        "text": f'"model":"{ENGINE}"',
    }


def test_error_text_never_shows_the_engines_name():
    body = json.dumps({"error": {"message": f"The model `{ENGINE}` does not exist."}}).encode()
    assert json.loads(NAME.restored(body)) == {
        "error": {"message": "The model `support` does not exist."}
    }


def test_contents_beside_an_error_are_left_alone():
    body = json.dumps({"error": None, "model": ENGINE, "text": ENGINE}).encode()
    assert json.loads(NAME.restored(body)) == {"error": None, "model": "support", "text": ENGINE}


def test_what_is_no_object_passes_unchanged():
    for body in (b"", b"[DONE]", b"[1]", b'{"model":', b"\xff", b'{"a":1}', b"[" * 5000):
        assert NAME.restored(body) == body


def test_answer_that_an_event_wraps_gets_the_public_name():
    for field in ("response", "message"):
        written = json.dumps({"type": "begun", field: {"id": "r1", "model": ENGINE}, "n": 1})
        restored = json.loads(NAME.restored(written.encode()))
        assert {"type": "begun", field: {"id": "r1", "model": "support"}, "n": 1} == restored


def test_field_of_that_name_elsewhere_is_left_alone():
    body = json.dumps({"message": {"model": ENGINE}, "choices": []}).encode()
    assert body == NAME.restored(body)


def test_stream_of_each_kind_has_a_last_word_of_its_own():
    lasts = (b"[DONE]", b'{"type":"message_stop"}', b'{"type": "response.completed"}')
    for last in lasts:
        stream = EventStream(NAME)
        stream.feed(b'data: {"type":"other"}\n\n')
        assert not stream.is_done
        stream.feed(b"data: " + last + b"\n\n")
        assert stream.is_done


def test_event_passes_as_soon_as_its_line_is_whole():
    stream = EventStream(NAME)
    assert stream.feed(b'data: {"model":"supp') == b""
    assert stream.feed(b'ort@5e5e5e5e5e5e"}\n') == b'data: {"model":"support"}\n'
    assert stream.feed(b"\n: ping\n\nda") == b"\n: ping\n\n"
    assert stream.end() == b"da"


def test_last_line_without_an_end_is_restored_too():
    assert passed([event(ENGINE, "x").rstrip()]) == event("support", "x").rstrip()


_texts = st.lists(st.text(max_size=20), max_size=6)
_ends = st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r"])


@settings(deadline=None)
@given(texts=_texts, end=_ends, cuts=st.lists(st.integers(0, 4000), max_size=12))
def test_stream_split_anywhere_gives_the_same_events(texts: list[str], end: bytes, cuts: list[int]):
    def stream_of(model: str) -> bytes:
        events = b"".join(event(model, text) for text in texts)
        return b": hello\n\n" + events.replace(b"\n\n", end) + b"data: [DONE]" + end

    assert passed(pieces(stream_of(ENGINE), cuts)) == stream_of("support")


@settings(deadline=None)
@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_stream_of_anything_comes_through_whole(noise: bytes, cuts: list[int]):
    whole = passed([noise])
    assert passed(pieces(noise, cuts)) == whole
    if b"model" not in noise:
        assert whole == noise


def test_line_that_never_ends_does_not_grow_memory(monkeypatch):
    monkeypatch.setattr(rewrite, "MAX_LINE_BYTES", 100)
    stream = EventStream(NAME)
    assert stream.feed(b"data: " + b"x" * 100) == b"data: " + b"x" * 100
    assert stream.feed(b"yyy") == b"yyy"
    assert stream.feed(b"z\n" + event(ENGINE, "a")) == b"z\n" + event("support", "a")
