import json

import pytest
from multidict import CIMultiDict

from tests.gateway.support import a_release, a_route, ready
from vctl_agent.gateway.answers import Refused
from vctl_agent.gateway.call import engine_body, read_asked, read_call
from vctl_agent.gateway.state import Known, ReleaseAt, RouteAt, targets
from vctl_agent.gateway.target import Target
from vctl_plans.routing import session_key


def a_target() -> Target:
    release = a_release(1)
    known = Known(
        routes={"support": RouteAt(5, a_route(1))}, releases={("support", 1): ReleaseAt(3, release)}
    )
    return targets(known, ready(release))["support", 1]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"[]", "invalid_json"),
        (b'{"model": "\xff"}', "invalid_json"),
        (b'{"a": ' + b"[" * 100_000, "invalid_json"),
        (b"{}", "invalid_value"),
        (b'{"model": ""}', "invalid_value"),
        (b'{"model": 7}', "invalid_value"),
        (b'{"model": null}', "invalid_value"),
    ],
)
def test_body_without_a_model_is_refused(body: bytes, code: str):
    with pytest.raises(Refused) as refused:
        read_call(body)
    assert (refused.value.status, refused.value.code) == (400, code)


def test_engine_gets_its_own_name_the_salt_and_every_other_byte():
    target = a_target()
    call = read_call(b'{"model":"support","seed":123456789012345678901234567890,"x":[1.0,  2]}')
    assert engine_body(call, target) == (
        b'{"model":"%s","seed":123456789012345678901234567890,"x":[1.0,  2],"cache_salt":"%s"}'
        % (target.model.encode(), target.salt.encode())
    )


def test_model_that_stands_twice_reaches_the_engine_once():
    call = read_call(b'{"model":"other","model":"support"}')
    assert call.model == "support"
    assert engine_body(call, a_target()).count(b'"model"') == 1


def test_clients_salt_is_mixed_in_and_must_be_text():
    target = a_target()
    call = read_call(b'{"model":"support","cache_salt":"mine"}')
    assert json.loads(engine_body(call, target))["cache_salt"] == target.salted("mine")
    assert target.salted("mine") != target.salt
    with pytest.raises(Refused, match="cache_salt must be text"):
        engine_body(read_call(b'{"model":"support","cache_salt":7}'), target)


def test_key_is_the_one_that_every_gateway_finds():
    document = {
        "model": "support",
        "user": "ann",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "hé"}]},
            {"role": "assistant", "content": "?"},
        ],
    }
    call = read_call(json.dumps(document).encode())
    assert read_asked(call, {}, "id").key == session_key({}, document, "id")
    headers = {"x-vctl-session": "s1"}
    assert read_asked(call, headers, "id").key == session_key(headers, document, "id")


def test_caller_is_what_headers_say_else_the_bodys_user():
    call = read_call(b'{"model":"support","user":"bo"}')
    fields = CIMultiDict(
        {"X-VCTL-User": "ann", "x-vctl-tenant": "acme", "X-Tier": "b", "Cookie": "c"}
    )
    asked = read_asked(call, fields, "id", named={"x-tier", "x-region"})
    assert (asked.request, asked.user, asked.tenant) == ("id", "ann", "acme")
    assert asked.headers == {"x-tier": "b"}
    assert read_asked(call, {}, "id").user == "bo"
    assert read_asked(call, {"x-vctl-session": "s"}, "id").user == "bo"
    assert read_asked(call, fields, "id").headers == {}
    for user in ("7", "null", '["bo"]', '""'):
        call = read_call(b'{"model":"support","user":%s}' % user.encode())
        assert read_asked(call, {}, "id").user == ""


def test_release_header_is_a_number_or_refused():
    call = read_call(b'{"model":"support"}')
    assert read_asked(call, {"x-vctl-release": "7"}, "id").release == 7
    assert read_asked(call, {}, "id").release == 0
    for text in ("0", "-1", "seven", "7.0", "\u0667", "9" * 40):
        with pytest.raises(Refused) as refused:
            read_asked(call, {"x-vctl-release": text}, "id")
        assert refused.value.status == 400


def test_field_that_would_bring_another_adapter_is_left_out():
    call = read_call(b'{"model":"support","lora_path":"support@000000000000"}')
    assert "lora_path" not in json.loads(engine_body(call, a_target()))
