"""Voters added, removed, replaced and moved while a whole cluster is working (KIP-853)."""

from __future__ import annotations

import pytest

from kraft.client import KafkaError
from kraft.client.admin import NewTopic
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import TimedOut
from kraft.seam import Address
from kraft.wire.error_codes import ErrorCode

from .voters import Voters, address, directory, play

ALL = (101, 102, 103)


async def create(voters: Voters, name: str) -> None:
    await voters.admin.topics.create(NewTopic(name, 1, 1))


async def refusal(voters: Voters, node_id: int, *, life: int = 1, at: Address | None = None) -> ErrorCode:
    """Return the error with which the cluster refuses to add this voter."""
    with pytest.raises(KafkaError) as refused:
        await voters.admin.nodes.add_voter(node_id, directory(node_id, life), at or address(node_id))
    return refused.value.code


def test_quorum_of_one_grows_to_three_and_survives_removal_of_its_first_voter() -> None:
    async def work(voters: Voters) -> None:
        assert await voters.ids() == (101,)
        await create(voters, "a")
        await voters.cluster.world.sleep_ms(10_000)
        for node_id in (102, 103):
            await voters.admin.nodes.add_voter(node_id, directory(node_id), address(node_id))
        assert await voters.ids() == ALL
        assert (await voters.admin.nodes.quorum()).leader_epoch == 1, "no leader had to resign"
        voters.cluster.crash(101, lose_power=True, is_noticed=True)
        await create(voters, "b")
        assert voters.leader in (102, 103)
        quorum = await voters.admin.nodes.quorum()
        assert [(one.node_id, one.directory_id) for one in quorum.voters] == [(n, directory(n)) for n in ALL]

    play(work, first=(101,))


def test_dead_voter_is_removed_and_comes_back_as_an_observer() -> None:
    async def work(voters: Voters) -> None:
        dead = next(node for node in ALL if node != voters.leader)
        voters.cluster.crash(dead, lose_power=False, is_noticed=True)
        await voters.admin.nodes.remove_voter(dead, directory(dead))
        assert await voters.ids() == tuple(node for node in ALL if node != dead)
        await create(voters, "a")
        voters.cluster.start(dead)
        await voters.wait(lambda: not voters.cluster.trouble())
        quorum = await voters.admin.nodes.quorum()
        assert dead in [one.node_id for one in quorum.observers]

    play(work)


def test_leader_that_removes_itself_hands_over_leadership_once_the_removal_is_committed() -> None:
    async def work(voters: Voters) -> None:
        leader = voters.leader
        await voters.admin.nodes.remove_voter(leader, directory(leader))
        await voters.wait_reported(*(node for node in ALL if node != leader))
        assert voters.leader != leader
        await create(voters, "a")

    play(work)


def test_voter_with_a_wiped_disk_is_replaced_by_its_new_directory_id() -> None:
    async def work(voters: Voters) -> None:
        lost = next(node for node in ALL if node != voters.leader)
        voters.cluster.crash(lost, lose_power=True, is_noticed=True)
        voters.cluster.wipe(lost)
        voters.format(lost, life=2)
        voters.cluster.start(lost, wiped=True)
        assert await refusal(voters, lost, life=2) is ErrorCode.DUPLICATE_VOTER
        await voters.cluster.world.sleep_ms(2_000)
        quorum = await voters.admin.nodes.quorum()
        assert (lost, directory(lost, 1)) in [(one.node_id, one.directory_id) for one in quorum.voters]
        assert (lost, directory(lost, 2)) in [(one.node_id, one.directory_id) for one in quorum.observers]
        await voters.admin.nodes.remove_voter(lost, directory(lost, 1))
        await voters.admin.nodes.add_voter(lost, directory(lost, 2), address(lost))
        quorum = await voters.admin.nodes.quorum()
        assert (lost, directory(lost, 2)) in [(one.node_id, one.directory_id) for one in quorum.voters]

    play(work)


def test_impossible_add_voter_is_refused_with_kafkas_error_code() -> None:
    async def work(voters: Voters) -> None:
        nodes = voters.admin.nodes
        assert await refusal(voters, 101) is ErrorCode.DUPLICATE_VOTER
        assert await refusal(voters, 102, life=9) is ErrorCode.INVALID_REQUEST
        assert await refusal(voters, 109, at=address(103)) is ErrorCode.INVALID_REQUEST
        assert await refusal(voters, 102, at=Address("node-1", 1)) is ErrorCode.REQUEST_TIMED_OUT
        voters.cluster.crash(103, lose_power=False, is_noticed=True)
        assert await refusal(voters, 103) is ErrorCode.REQUEST_TIMED_OUT
        with pytest.raises(KafkaError, match="listener CONTROLLER"):
            await nodes.add_voter(102, directory(102), address(102), listener="OTHER")
        for node_id, life in ((102, 1), (101, 2), (101, 1)):
            with pytest.raises(KafkaError) as refused:
                await nodes.remove_voter(node_id, directory(node_id, life))
            assert refused.value.code is ErrorCode.VOTER_NOT_FOUND
        assert await voters.ids() == (101,)

    play(work, first=(101,))


def test_voter_changes_of_a_static_quorum_are_refused() -> None:
    async def work(voters: Voters) -> None:
        assert await refusal(voters, 102) is ErrorCode.UNSUPPORTED_VERSION
        with pytest.raises(KafkaError) as refused:
            await voters.admin.nodes.remove_voter(101, directory(101))
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION

    fixed = ",".join(f"{node}@node-{node}:9093" for node in ALL)
    play(work, first=(), controller_quorum_voters=fixed)


def test_add_voter_is_refused_while_the_new_voter_is_cut_off_and_accepted_afterwards() -> None:
    async def work(voters: Voters) -> None:
        voters.cluster.world.partition("node-101", "node-102")
        assert await refusal(voters, 102) is ErrorCode.REQUEST_TIMED_OUT
        voters.cluster.world.heal_all()
        await voters.admin.nodes.add_voter(102, directory(102), address(102))
        assert await voters.ids() == (101, 102)

    play(work, first=(101,), timeout_ms=6_000)


@pytest.mark.parametrize("seed", range(3))
def test_voter_change_appended_only_by_a_lost_leader_leaves_a_working_quorum(seed: int) -> None:
    async def work(voters: Voters) -> None:
        leader = voters.leader
        others = [node for node in ALL if node != leader]
        for node in others:
            voters.cluster.crash(node, lose_power=True, is_noticed=True)
        with pytest.raises((KafkaError, TimedOut, ClusterUnreachable)) as lost:
            await voters.admin.nodes.remove_voter(others[0], directory(others[0]))
        if isinstance(lost.value, KafkaError):
            assert lost.value.code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER)
        for node in others:
            voters.cluster.start(node)
        await voters.wait(lambda: not voters.cluster.trouble())
        assert set(await voters.ids()) in ({*ALL}, {*ALL} - {others[0]})
        await create(voters, "a")

    play(work, seed=seed, timeout_ms=8_000)


@pytest.mark.parametrize("seed", range(3))
def test_controllers_with_auto_join_become_voters(seed: int) -> None:
    async def work(voters: Voters) -> None:
        await voters.wait_reported(*ALL)
        await create(voters, "a")
        lost = next(node for node in ALL if node != voters.leader)
        voters.cluster.crash(lost, lose_power=True, is_noticed=True)
        voters.cluster.wipe(lost)
        voters.format(lost, life=2)
        voters.cluster.start(lost, wiped=True)

        async def keys() -> list[object]:
            return [(one.node_id, one.directory_id) for one in (await voters.admin.nodes.quorum()).voters]

        for _ in range(200):
            if (lost, directory(lost, 2)) in await keys():
                break
            await voters.cluster.world.sleep_ms(50)
        assert (lost, directory(lost, 2)) in await keys()
        await create(voters, "b")

    play(work, first=(101,), seed=seed, controller_quorum_auto_join_enable="true")


def test_controllers_without_auto_join_stay_observers() -> None:
    async def work(voters: Voters) -> None:
        await voters.cluster.world.sleep_ms(15_000)
        assert await voters.ids() == (101,)

    play(work, first=(101,))
