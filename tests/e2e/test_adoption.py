"""Into vctl and out of it again, with clients that never stop asking."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.engines import DirectLoad, ask_engine, listed, post
from tests.e2e.support import SERVICE, Fleet, Load, a_fleet, ask
from vctl_plans.phase import RolloutPhase

pytestmark = [pytest.mark.e2e, pytest.mark.etcd, pytest.mark.torch, pytest.mark.xdist_group("live")]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two nodes whose engines serve an adapter that somebody loaded by hand."""
    with a_fleet(tmp_path_factory.mktemp("fleet"), nodes=2) as made:
        for url in made.dev.engine_urls.values():
            post(f"{url}/v1/load_lora_adapter", lora_name=SERVICE, lora_path=str(_by_hand(made)))
        made.until(lambda: all(r.unmanaged for r in made.dev.read().present().values()))
        yield made


def _by_hand(fleet: Fleet) -> Path:
    return fleet.adapter("v1")


def test_adapter_that_engines_serve_is_adopted_rolled_on_and_handed_back(fleet: Fleet) -> None:
    """Who calls an engine, and who calls a gateway once it serves, loses no request throughout."""
    engines = list(fleet.dev.engine_urls.values())
    gateways = list(fleet.dev.gateway_urls.values())
    by_hand = ask_engine(engines[0])[1]
    with DirectLoad(engines).running(each=1) as direct:
        direct.wait_for(5)

        said = fleet.vctl("service", "import", SERVICE)
        assert said.code == 0, said
        assert f"{SERVICE} is served from {_by_hand(fleet)} by n1, n2" in said.err
        assert 1 == fleet.stable()
        assert (1, by_hand) == ask(gateways[0])
        again = fleet.vctl("service", "import", SERVICE)
        assert (0, 1) == (again.code, len(fleet.service().releases)), again

        with Load(gateways).running(each=1) as through:
            through.wait_for(5)
            started = fleet.vctl("rollout", "start", "--adapter", str(fleet.adapter("v2")))
            assert started.code == 0, started
            assert 2 == fleet.stable()
            through.wait_for(5)
            back = fleet.vctl("rollback", "--now")
            assert back.code == 0, back
            assert 1 == fleet.stable()
            through.wait_for(5)

            prepared = fleet.vctl("service", "eject", SERVICE, "--prepare")
            assert prepared.code == 0, prepared
            through.wait_for(5)
        direct.wait_for(5)
        ejected = fleet.vctl("--yes", "service", "eject", SERVICE)
        assert ejected.code == 0, ejected
        direct.wait_for(5)

    assert [] == direct.failures
    assert [] == through.failures
    assert {(0, by_hand)} == set(direct.answers)  # nobody touched what was loaded by hand
    assert {1, 2} == {release for release, _ in through.answers}
    assert f"vctl rollout start --service {SERVICE} --release 1" in ejected.out
    fleet.until(lambda: all({SERVICE} == set(names) for names in listed(fleet)))


def test_service_that_was_let_go_can_come_back(fleet: Fleet) -> None:
    """Numbers go on, and what was revoked still is; its name is given again when it leaves."""
    assert fleet.vctl("service", "eject", SERVICE).code == 7
    assert "let go: engines were left with release 1" in fleet.vctl("status").out
    assert 7 == fleet.vctl("service", "import", SERVICE).code
    assert 7 == fleet.vctl("rollout", "start", "--release", "2").code

    back = fleet.vctl("rollout", "start", "--release", "1")
    assert back.code == 0, back
    assert (1, (2,)) == (fleet.stable(), fleet.service().current_route.revoked)
    assert 1 == ask(fleet.dev.gateway_urls["n1"])[0]


def test_name_that_holds_something_else_is_not_taken(fleet: Fleet) -> None:
    """Exit code 8, the nodes are named, nothing is let go; once it is free, it works."""
    started = fleet.vctl("rollout", "start", "--adapter", str(fleet.adapter("v3")))
    assert started.code == 0, started
    number = fleet.stable()

    refused = fleet.vctl("--yes", "service", "eject", SERVICE)

    assert refused.code == 8, refused
    assert "unconfirmed: n1, n2; nothing was let go" in refused.out
    assert f"the engine holds {SERVICE} from {_by_hand(fleet)}" in refused.err
    assert number == fleet.stable()

    for url in fleet.dev.engine_urls.values():
        post(f"{url}/v1/unload_lora_adapter", lora_name=SERVICE)
    right = ask(fleet.dev.gateway_urls["n1"])[1]
    assert fleet.vctl("--yes", "service", "eject", SERVICE).code == 0
    assert {(0, right)} == {ask_engine(url) for url in fleet.dev.engine_urls.values()}
    root = fleet.service().releases[number].components["adapter"].root  # type: ignore[index]
    assert all(names[SERVICE].endswith(root.removeprefix("b3:")) for names in listed(fleet))


def test_what_nobody_can_read_is_adopted_unverified_and_said_so(fleet: Fleet) -> None:
    """It serves from where it is; vctl neither loads nor unloads it, also when another follows."""
    hidden = fleet.folder / "models" / "adapters" / "hidden"
    hidden.mkdir()
    for file in fleet.adapter("v2").iterdir():
        (hidden / file.name).write_bytes(file.read_bytes())
    for url in fleet.dev.engine_urls.values():
        post(f"{url}/v1/load_lora_adapter", lora_name="faq-tuned", lora_path=str(hidden))
    for file in hidden.iterdir():
        file.unlink()
    hidden.rmdir()
    fleet.until(
        lambda: all(
            "faq-tuned" in {each.name for each in report.unmanaged}
            for report in fleet.dev.read().present().values()
        )
    )

    said = fleet.vctl("service", "import", "faq", "--adapter", "faq-tuned")

    assert said.code == 0, said
    assert "adopted UNVERIFIED" in said.err
    assert "adopted unverified" in fleet.vctl("status").out
    services = json.loads(fleet.vctl("-o", "json", "service", "list").out)
    (line,) = (each for each in services["services"] if each["service"] == "faq")
    assert ("gateway", 1) == (line["mode"], line["release"])
    assert "nobody read it" in line["unverified"]
    started = fleet.vctl(
        "rollout", "start", "--service", "faq", "--adapter", str(fleet.adapter("v3"))
    )
    assert started.code == 0, started
    assert fleet.vctl("rollback", "--now", "--service", "faq").code == 0
    assert RolloutPhase.ROLLED_BACK is fleet.dev.read().services["faq"].rollout.phase  # type: ignore[union-attr]
    assert all("faq-tuned" in names for names in listed(fleet))
