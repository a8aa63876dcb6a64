"""The fault board over HTTP, against real processes."""

from __future__ import annotations

from kraft.deploy.launch.control import LocalCluster
from tests.deploy.console.inside import ConsoleClient, console, text_of


def settings(cluster: LocalCluster) -> dict[str, object]:
    return {"data": cluster.folder.path, "allow_changes": True}


async def done(asked: ConsoleClient, **fields: str) -> str:
    """Send a form to the fault board, and return the notice that the console shows."""
    answer = await asked.post("/faults", **fields)
    assert answer.status_code == 303, text_of(answer.text)
    return await asked.page(answer.headers["location"])


async def test_the_fault_board_cuts_slows_and_heals_links(small_cluster: LocalCluster) -> None:
    controller, broker = sorted(small_cluster.node_ids, reverse=True)
    async with console(small_cluster.bootstrap_servers, **settings(small_cluster)) as asked:
        cut = await done(asked, action="cut", node=str(broker), peer=str(controller))
        assert f"links cut: {broker} → {controller}, {controller} → {broker}" in cut
        assert f"to {controller}: hang" in cut
        slow = await done(asked, action="slow", node=str(broker), delay_ms="5")
        assert f"to {controller}: slow" in slow
        healed = await done(asked, action="heal")
        assert f"to {controller}:" not in healed


async def test_the_fault_board_pauses_resumes_kills_and_starts_a_node(small_cluster: LocalCluster) -> None:
    broker = min(small_cluster.node_ids)
    async with console(small_cluster.bootstrap_servers, **settings(small_cluster)) as asked:
        assert "is paused" in await done(asked, action="pause", node=str(broker))
        assert "is resumed" in await done(asked, action="resume", node=str(broker))
        assert f"node {broker} is killed" in await done(asked, action="kill", node=str(broker))
        assert f"node {broker} is started" in await done(asked, action="start", node=str(broker))
    small_cluster.wait_ready()


async def test_an_invalid_form_of_the_fault_board_is_refused_with_the_reason(small_cluster: LocalCluster) -> None:
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


async def test_the_fault_board_shows_why_faults_are_not_possible(small_cluster: LocalCluster) -> None:
    bootstrap = small_cluster.bootstrap_servers
    async with console(bootstrap, allow_changes=True) as asked:
        page = await asked.page("/faults")
        assert "kraft up --fault-control, and the console with --data" in page
    async with console(bootstrap, data=small_cluster.folder.path) as asked:
        page = await asked.page("/faults")
        assert "start it with --allow-changes" in page
        assert "Kill" not in page
        assert (await asked.post("/faults", action="heal")).status_code == 403
