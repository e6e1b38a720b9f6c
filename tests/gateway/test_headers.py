from vctl_agent.gateway.headers import for_client, for_engine, request_id
from vctl_agent.gateway.wire.fields import Fields
from vctl_agent.gateway.wire.heads import Head


def head(*fields: tuple[str, str]) -> Head:
    return Head(Fields(fields))


def test_hop_by_hop_fields_and_those_that_connection_names_stay_here():
    given = head(
        ("Connection", "keep-alive, X-Secret-Hop"),
        ("X-Secret-Hop", "1"),
        ("Keep-Alive", "5"),
        ("TE", "trailers"),
        ("Upgrade", "h2c"),
        ("Accept", "text/event-stream"),
    )
    passed = for_engine(given).splitlines()
    assert passed == [
        b"Accept: text/event-stream",
        b"Content-Type: application/json",
        b"Accept-Encoding: identity",
    ]


def test_what_is_vctls_own_does_not_pass_in_either_direction():
    fields = [("X-Vctl-Release", "7"), ("x-vctl-hop", "1"), ("X-Other", "1")]
    assert b"x-vctl" not in for_engine(head(*fields)).lower()
    assert for_client(head(*fields)) == b"X-Other: 1\r\n"


def test_field_that_stands_twice_passes_twice():
    given = head(("Set-Cookie", "a"), ("Set-Cookie", "b"), ("Content-Length", "7"))
    assert for_client(given) == b"Set-Cookie: a\r\nSet-Cookie: b\r\n"


def test_request_id_is_the_clients_if_it_is_fit_for_a_log():
    assert request_id("abc-1") == "abc-1"
    for unfit in ("", "two words", "x" * 129, "line\nfeed", "ü"):
        made = request_id(unfit)
        assert made != unfit
        assert len(made) == 32
