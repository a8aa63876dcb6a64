"""Progress of a reassignment plan, from the responses of simulated clusters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from kraft.client.admin import ConfigChange, ConfigOperation, ConfigResource, NewTopic, ResourceType
from kraft.client.admin import Reassignment as Running
from kraft.deploy.cli.partitions.reassign_progress import ReassignmentProgress, fetch_progress, wait_until_over
from kraft.deploy.cli.partitions.reassignment_file import Placement
from tests.broker.logs import test_replica_moves as directories
from tests.client.admin.test_reassignments_in_world import state
from tests.stages import admin_client as plain

PART = ("t", 0)
HERE, THERE = (1, PART, "/a"), (1, PART, "/b")
INTO_B = Placement((1, 2), ("/b", "any"))


@pytest.mark.parametrize(
    ("placement", "running", "current", "held", "coming", "expected"),
    [
        (Placement((1, 2)), {}, (1, 2), {HERE}, set(), "done"),
        (Placement((1, 2)), {}, (2, 1), {HERE}, set(), "not as planned"),
        (Placement((1, 2)), {PART: Running((1, 2, 3), (2,), (3,))}, (1, 2, 3), set(), set(), "being moved"),
        (Placement((1, 2)), {PART: Running((1, 3), (3,), (1,))}, (1, 3), set(), set(), "being moved to [3]"),
        (INTO_B, {}, (1, 2), {THERE}, set(), "done"),
        (INTO_B, {}, (1, 2), {HERE}, {THERE}, "being moved between directories"),
        (INTO_B, {}, (1, 2), {HERE}, set(), "not as planned"),
        (INTO_B, {}, (1, 2), {THERE}, {HERE}, "not as planned"),
        (INTO_B, {}, (1, 2), set(), set(), "not as planned"),
        (INTO_B, {}, (1, 3), {THERE}, set(), "not as planned"),
    ],
)
def test_the_reassignment_state_of_a_partition_is_computed_from_its_current_replicas(
    placement: Placement,
    running: dict[tuple[str, int], Running],
    current: tuple[int, ...],
    held: set[tuple[int, tuple[str, int], str]],
    coming: set[tuple[int, tuple[str, int], str]],
    expected: str,
) -> None:
    progress = ReassignmentProgress(
        placements={PART: placement},
        running=running,
        current={PART: current},
        held={(broker, part): path for broker, part, path in held},
        coming={(broker, part): path for broker, part, path in coming},
    )
    assert progress.state(PART) == expected
    assert progress.is_done is (expected == "done")
    assert progress.is_moving is ("being moved" in expected)


def test_a_replica_move_that_ends_between_two_progress_requests_is_not_reported_as_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(stage: plain.Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", assignment={0: [1]}))
        stage.cluster.crash(2, lose_power=False, is_noticed=True)
        await stage.admin.partitions.reassign({PART: [2]})
        is_over = False

        def asked_while_it_ends(question: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
            async def ask(*arguments: object) -> object:
                nonlocal is_over
                answer = await question(*arguments)
                if not is_over:
                    is_over = True
                    stage.cluster.start(2)
                    await stage.cluster.wait_until(lambda: not stage.cluster.trouble(), 20_000)
                return answer

            return ask

        monkeypatch.setattr(stage.admin.topics, "describe", asked_while_it_ends(stage.admin.topics.describe))
        list_moves = asked_while_it_ends(stage.admin.partitions.reassignments)
        monkeypatch.setattr(stage.admin.partitions, "reassignments", list_moves)
        progress = await fetch_progress(stage.admin, {PART: Placement((2,))})
        assert progress.state(PART) == "being moved"
        assert (await fetch_progress(stage.admin, {PART: Placement((2,))})).state(PART) == "done"

    plain.play(work)


def test_waiting_for_a_reassignment_includes_moves_between_log_directories() -> None:
    async def work(stage: directories.Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        await directories.write(stage, 0, 10, size=900_000)
        slow = ConfigChange(ConfigOperation.SET, "replica.alter.log.dirs.io.max.bytes.per.second", "1000000")
        await stage.admin.configs.alter(ConfigResource(ResourceType.BROKER, "1"), [slow])
        plan = {PART: Placement((1,), (stage.other(),))}
        assert (await fetch_progress(stage.admin, plan)).state(PART) == "not as planned"
        await stage.move(stage.other())
        progress = await wait_until_over(stage.admin, plan)
        assert progress.state(PART) == "done"
        await stage.move(stage.other())
        await stage.cluster.world.sleep_ms(500)
        plan = {PART: Placement((1,), (stage.other(),))}
        assert (await fetch_progress(stage.admin, plan)).state(PART) == "being moved between directories"

    directories.play(work)


def test_waiting_for_a_reassignment_ends_when_its_move_is_cancelled() -> None:
    async def work(stage: directories.Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        progress = await wait_until_over(stage.admin, {PART: Placement((1,), (stage.other(),))})
        assert progress.state(PART) == "not as planned"

    directories.play(work)


def test_reassignment_progress_is_reported_while_a_broker_is_down() -> None:
    async def work(stage: plain.Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", assignment={0: [2, 1]}))
        stage.cluster.crash(2, lose_power=False, is_noticed=True)
        assert await stage.cluster.wait_until(lambda: state(stage).leader == 1, 20_000)
        progress = await fetch_progress(stage.admin, {PART: Placement((2, 1), ("/a", "any"))})
        assert progress.state(PART) == "not as planned"

    plain.play(work)
