from multidict import CIMultiDict

from vctl_agent.gateway.headers import for_client, for_engine, request_id


def test_hop_by_hop_fields_and_those_that_connection_names_stay_here():
    given = CIMultiDict(
        {
            "Connection": "keep-alive, X-Secret-Hop",
            "X-Secret-Hop": "1",
            "Keep-Alive": "5",
            "TE": "trailers",
            "Upgrade": "h2c",
            "Accept": "text/event-stream",
        }
    )
    passed = for_engine(given, "id")
    assert dict(passed) == {
        "Accept": "text/event-stream",
        "Content-Type": "application/json",
        "Accept-Encoding": "identity",
        "x-request-id": "id",
    }


def test_what_is_vctls_own_does_not_pass_in_either_direction():
    given = CIMultiDict({"X-Vctl-Release": "7", "x-vctl-hop": "1", "X-Other": "1"})
    assert "x-vctl-release" not in for_engine(given, "id")
    assert dict(for_client(given)) == {"X-Other": "1"}


def test_field_that_stands_twice_passes_twice():
    given = CIMultiDict([("Set-Cookie", "a"), ("Set-Cookie", "b"), ("Content-Length", "7")])
    assert for_client(given).getall("Set-Cookie") == ["a", "b"]
    assert "Content-Length" not in for_client(given)


def test_request_id_is_the_clients_if_it_is_fit_for_a_log():
    assert request_id({"x-request-id": "abc-1"}) == "abc-1"
    for unfit in ("", "two words", "x" * 129, "line\nfeed", "ü"):
        made = request_id({"x-request-id": unfit})
        assert made != unfit
        assert len(made) == 32
