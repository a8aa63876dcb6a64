"""The fault board over HTTP, against real processes."""

from __future__ import annotations

from kraft.deploy.launch.control import LocalCluster
from tests.deploy.console.inside import Asker, console, text_of


def settings(cluster: LocalCluster) -> dict[str, object]:
    return {"data": cluster.folder.path, "allow_changes": True}


async def done(asked: Asker, **fields: str) -> str:
    """What the console says was done."""
    answer = await asked.post("/faults", **fields)
    assert answer.status_code == 303, text_of(answer.text)
    return await asked.page(answer.headers["location"])


async def test_links_are_cut_slowed_and_healed(small_cluster: LocalCluster) -> None:
    controller, broker = sorted(small_cluster.node_ids, reverse=True)
    async with console(small_cluster.bootstrap_servers, **settings(small_cluster)) as asked:
        cut = await done(asked, action="cut", node=str(broker), peer=str(controller))
        assert f"links cut: {broker} → {controller}, {controller} → {broker}" in cut
        assert f"to {controller}: hang" in cut
        slow = await done(asked, action="slow", node=str(broker), delay_ms="5")
        assert f"to {controller}: slow" in slow
        healed = await done(asked, action="heal")
        assert f"to {controller}:" not in healed


async def test_a_node_is_paused_and_goes_on_and_is_killed_and_started(small_cluster: LocalCluster) -> None:
    broker = min(small_cluster.node_ids)
    async with console(small_cluster.bootstrap_servers, **settings(small_cluster)) as asked:
        assert "is paused" in await done(asked, action="pause", node=str(broker))
        assert "goes on" in await done(asked, action="resume", node=str(broker))
        assert f"node {broker} is killed" in await done(asked, action="kill", node=str(broker))
        assert f"node {broker} is started" in await done(asked, action="start", node=str(broker))
    small_cluster.wait_ready()


async def test_a_form_that_makes_no_sense_is_explained(small_cluster: LocalCluster) -> None:
    broker = str(min(small_cluster.node_ids))
    async with console(small_cluster.bootstrap_servers, **settings(small_cluster)) as asked:
        for fields, words in (
            ({"action": "melt"}, "expected one of kill, pause"),
            ({"action": "kill", "node": "99"}, "node 99: expected one of"),
            ({"action": "cut", "node": broker, "peer": broker}, "no link to itself"),
            ({"action": "slow", "node": broker, "delay_ms": "0"}, "expected 1 to 60000 ms"),
        ):
            answer = await asked.post("/faults", **fields)
            assert answer.status_code == 400
            assert words in text_of(answer.text)


async def test_the_board_says_why_it_makes_no_fault(small_cluster: LocalCluster) -> None:
    bootstrap = small_cluster.bootstrap_servers
    async with console(bootstrap, allow_changes=True) as asked:
        page = await asked.page("/faults")
        assert "kraft up --fault-control, and the console with --data" in page
    async with console(bootstrap, data=small_cluster.folder.path) as asked:
        page = await asked.page("/faults")
        assert "start it with --allow-changes" in page
        assert "Kill" not in page
        assert (await asked.post("/faults", action="heal")).status_code == 403
