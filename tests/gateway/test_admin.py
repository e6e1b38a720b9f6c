from pathlib import Path
from typing import Any

from tests.gateway.support import Bench, a_release, a_route, bench, eventually


async def readyz(gateway: Bench) -> tuple[int, dict[str, Any]]:
    async with gateway.client.get(f"{gateway.admin_url}/readyz") as answer:
        return answer.status, await answer.json()


async def test_gateway_lives_before_it_is_ready(tmp_path: Path):
    async with bench(tmp_path) as gateway:
        async with gateway.client.get(f"{gateway.admin_url}/livez") as answer:
            assert answer.status == 200
        status, found = await readyz(gateway)
        assert (status, found["reason"]) == (503, "nothing is routed")


async def test_readiness_latches_and_says_what_is_missing(tmp_path: Path):
    async with bench(tmp_path) as gateway:
        revision = await gateway.route(a_route(1), a_release(1), a_release(2))
        status, found = await readyz(gateway)
        assert (status, found["not_ready"]) == (503, ["support/1"])
        await gateway.ready(a_release(1))
        status, found = await readyz(gateway)
        assert (status, found["routes"]) == (200, {"support": revision})
        await gateway.route(a_route(1, candidate=2, weight=5.0))
        status, found = await readyz(gateway)
        assert (status, found["not_ready"]) == (200, ["support/2"])
        await gateway.ready()
        assert (await readyz(gateway))[0] == 503


async def test_readiness_says_that_the_store_is_a_restored_backup(tmp_path: Path):
    async with bench(tmp_path) as gateway:
        await gateway.route(a_route(1), a_release(1))
        await gateway.ready(a_release(1))
        gateway.store.mark_restored()
        await eventually(lambda: bool(gateway.gateway.live.suspended))
        status, found = await readyz(gateway)
        assert status == 200
        assert found["suspended"] == "the store is not the one that was known"
        assert not found["is_connected"]
        async with gateway.ask() as answer:
            assert answer.status == 200


async def test_admin_and_clients_do_not_share_paths(tmp_path: Path):
    async with bench(tmp_path) as gateway:
        for url in (f"{gateway.url}/readyz", f"{gateway.admin_url}/v1/models"):
            async with gateway.client.get(url) as answer:
                assert answer.status == 404
