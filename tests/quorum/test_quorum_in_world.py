"""Real drivers and real files in a simulated world: elect, append, commit, kill, restart, rejoin."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
import trio
from structlog.testing import capture_logs

from kraft.node.log_limit import INTERVAL_MS
from kraft.node.peers import Peers
from kraft.quorum import listener_delivery as quorum_delivery
from kraft.raft.identity import ReplicaKey, Voter, VoterSet
from kraft.seam import Address, Peer
from kraft.sim.world import World, WorldOptions
from kraft.wire.rpc.quorum_messages import VoteRequest, VoteResponse

from .cluster import CLUSTER_ID, Member, config_of


class Cluster:
    def __init__(self, world: World, voters: int = 3, observers: int = 1, **extra: str) -> None:
        self.world = world
        ids = range(1, voters + 1)
        self.addresses = {n: (f"c{n}", 9000) for n in ids}
        self.members = {n: self._member(n, n in ids, extra) for n in range(1, voters + observers + 1)}
        self.voters = tuple(ids)

    def _member(self, n: int, is_controller: bool, extra: dict[str, str]) -> Member:
        config = config_of(n, self.addresses, f"/data/{n}", is_controller=is_controller, **extra)
        return Member(config, UUID(int=1000 + n))

    def start(self, *ids: int) -> None:
        for n in ids or tuple(self.members):
            self.world.start(f"c{n}", self.members[n].main)

    def kill(self, n: int, *, power: bool = False) -> None:
        (self.world.power_off if power else self.world.kill)(f"c{n}")
        self.members[n].quorum = None

    def restart(self, n: int) -> None:
        self.world.restart(f"c{n}")

    @property
    def leader(self) -> Member | None:
        for member in self.members.values():
            if member.quorum is not None and member.replica.leads is not None and member.quorum.is_leader:
                return member
        return None

    async def wait(self, condition: Callable[[], object], limit_ms: int = 10_000) -> int:
        """Wait until the condition holds; return the virtual ms that it took."""
        began = self.world.now_ns
        while not condition():
            assert self.world.now_ns - began < limit_ms * 1_000_000, "the condition does not come true"
            await self.world.sleep_ms(5)
        return (self.world.now_ns - began) // 1_000_000

    async def elect(self) -> Member:
        await self.wait(lambda: self.leader is not None)
        assert self.leader is not None
        return self.leader

    async def write(self, *values: bytes) -> None:
        """Append, and wait for the commit. Repeat it if the leader is lost before and the values are missing."""
        while not await self._write_once(values):
            following = await self.elect()
            if all(value in following.replica.values for value in values):
                return

    async def _write_once(self, values: tuple[bytes, ...]) -> bool:
        """Append once; return whether the leader that accepted it has committed it."""
        leader = await self.elect()
        quorum, epoch = leader.quorum, leader.replica.leads
        assert quorum is not None
        end = quorum.append(values)

        def leads() -> bool:
            return leader.quorum is quorum and leader.replica.leads == epoch

        await self.wait(lambda: leader.replica.next_offset >= end or not leads())
        return leads()

    def have(self, *values: bytes) -> bool:
        """Return whether every running member has replayed exactly these values."""
        return all(m.quorum is None or m.replica.values == list(values) for m in self.members.values())


def test_quorum_elects_a_leader_and_every_node_replays_committed_values() -> None:
    async def main(world: World) -> None:
        cluster = Cluster(world)
        cluster.start()
        took_ms = await cluster.wait(lambda: cluster.leader is not None)
        assert took_ms < 500
        await cluster.write(b"a", b"b")
        await cluster.write(b"c")
        await cluster.wait(lambda: cluster.have(b"a", b"b", b"c"))
        assert all(member.replica.gaps == 0 for member in cluster.members.values())

    World(1).run(main)


def test_observer_of_another_cluster_learns_nothing_and_logs_both_cluster_ids() -> None:
    async def main(world: World) -> None:
        cluster = Cluster(world)
        stray = cluster.members[4]
        stray.cluster_id = "another-cluster"
        with capture_logs() as lines:
            cluster.start()
            await cluster.elect()
            await world.sleep_ms(INTERVAL_MS - 1_000)
            assert stray.quorum is not None
            stray.quorum.log_limit.report()
            (line,) = [line for line in lines if line["event"].startswith("a controller of another cluster was asked")]
            assert (line["its_cluster"], line["our_cluster"]) == (CLUSTER_ID, "another-cluster")
            lines.clear()
            await world.sleep_ms(INTERVAL_MS)
            stray.quorum.log_limit.report()
            (line,) = [line for line in lines if line["event"].startswith("a controller of another cluster was asked")]
            assert line["repeated"] > 1
        assert stray.quorum.leader_and_epoch == (None, 0)
        assert stray.seam is not None
        assert not stray.seam.disk.exists("/data/4/__cluster_metadata-0/quorum-state")

    World(1).run(main)


@pytest.mark.parametrize("seed", range(6))
def test_a_killed_leader_is_replaced_within_300_ms_and_rejoins(seed: int) -> None:
    async def main(world: World) -> None:
        cluster = Cluster(world)
        cluster.start()
        await cluster.write(b"a")
        old = await cluster.elect()
        cluster.kill(old.config.node_id)
        took_ms = await cluster.wait(lambda: cluster.leader not in (None, old))
        assert took_ms < 300
        await cluster.write(b"b")
        cluster.restart(old.config.node_id)
        await cluster.wait(lambda: old.quorum is not None and cluster.have(b"a", b"b"))

    World(seed).run(main)


@pytest.mark.parametrize("power", [False, True])
def test_committed_values_survive_a_crash_of_all_voters(power: bool) -> None:
    async def main(world: World) -> None:
        cluster = Cluster(world)
        cluster.start()
        for number in range(20):
            await cluster.write(b"%d" % number)
        for n in cluster.members:
            cluster.kill(n, power=power)
        await world.sleep_ms(100)
        for n in cluster.members:
            cluster.restart(n)
        await cluster.write(b"after")
        expected = [b"%d" % number for number in range(20)] + [b"after"]
        await cluster.wait(lambda: cluster.have(*expected))

    World(11).run(main)


def test_clean_stop_of_the_quorum_leader_hands_over_leadership_at_once() -> None:
    async def main(world: World) -> None:
        cluster = Cluster(world)
        cluster.start()
        await cluster.write(b"a")
        old = await cluster.elect()
        assert old.quorum is not None
        await old.quorum.shutdown()
        cluster.kill(old.config.node_id)
        took_ms = await cluster.wait(lambda: cluster.leader not in (None, old))
        assert took_ms < 150
        cluster.restart(old.config.node_id)
        await cluster.write(b"b")
        await cluster.wait(lambda: old.quorum is not None and cluster.have(b"a", b"b"))

    World(5).run(main)


def test_single_voter_commits_only_synced_values() -> None:
    async def main(world: World) -> None:
        cluster = Cluster(world, voters=1, observers=0)
        cluster.start()
        took_ms = await cluster.wait(lambda: cluster.leader is not None)
        assert took_ms < 100
        await cluster.write(b"a")
        cluster.kill(1, power=True)
        cluster.restart(1)
        await cluster.write(b"b")
        await cluster.wait(lambda: cluster.have(b"a", b"b"))

    World(3).run(main)


def test_a_wiped_voter_and_a_wiped_observer_rejoin_by_snapshot_after_the_first_segment_is_gone() -> None:
    async def main(world: World) -> None:
        cluster = Cluster(
            world,
            internal_metadata_log_segment_bytes="2048",
            metadata_max_retention_bytes="1",
        )
        cluster.start()
        values: list[bytes] = []
        for round_number in range(3):
            for number in range(30):
                value = b"%d/%d %s" % (round_number, number, b"x" * 100)
                await cluster.write(value)
                values.append(value)
            for member in cluster.members.values():
                assert member.quorum is not None
                replica = member.replica
                await cluster.wait(lambda replica=replica: replica.values == values)
                chunks = [tuple(values[:10]), tuple(values[10:])]
                member.quorum.request_snapshot(replica.next_offset, replica.epoch, chunks)
            await world.sleep_ms(500)
        leader = await cluster.elect()
        folder = f"/data/{leader.config.node_id}/__cluster_metadata-0"
        assert leader.seam is not None
        assert f"{0:020d}.log" not in leader.seam.disk.list(folder)
        others = [n for n in cluster.voters if n != leader.config.node_id]
        for n in (others[0], 4):
            cluster.kill(n)
            world.node(f"c{n}").disk.remove_tree(f"/data/{n}")
            cluster.members[n].directory_id = UUID(int=2000 + n)
        await cluster.write(b"meanwhile")
        for n in (others[0], 4):
            cluster.restart(n)
        await cluster.write(b"last")
        await cluster.wait(lambda: cluster.have(*values, b"meanwhile", b"last"))
        for n in (others[0], 4):
            assert cluster.members[n].replica.snapshots
        cluster.kill(others[1])
        await cluster.write(b"with the wiped one")

    World(9).run(main)


def test_truncation_of_a_voters_record_reverts_the_voter_set() -> None:
    async def main(world: World) -> None:
        cluster = Cluster(world, observers=0)
        cluster.start()
        await cluster.write(b"a")
        old = await cluster.elect()
        number = old.config.node_id
        others = [n for n in cluster.voters if n != number]
        assert old.quorum is not None
        before = old.quorum.voters
        for n in others:
            world.partition(f"c{number}", f"c{n}")
        added = Voter(ReplicaKey(9, UUID(int=9)), Address("c9", 9000))
        changed = VoterSet((*before.voters, added))
        old.quorum.change_voters(changed)
        assert old.quorum.voters == changed
        await cluster.wait(lambda: cluster.leader not in (None, old))
        world.heal_all()
        await cluster.write(b"b")
        await cluster.wait(lambda: cluster.have(b"a", b"b"))
        assert old.quorum.voters == before

    World(21).run(main)


@pytest.mark.parametrize("voters", [3, 5])
def test_start_of_a_whole_quorum_elects_a_leader_within_three_election_rounds(voters: int) -> None:
    for seed in range(20):

        async def main(world: World) -> int:
            cluster = Cluster(world, voters=voters, observers=0)
            for n in cluster.members:
                cluster.start(n)
                await world.sleep_ms(world.random.stream("start").below(20))
            leader = await cluster.elect()
            assert leader.quorum is not None
            return leader.quorum.leader_and_epoch[1]

        assert World(seed).run(main) <= 3


def test_simulated_quorum_gives_the_same_trace_for_the_same_seed() -> None:
    async def main(world: World) -> None:
        cluster = Cluster(world)
        cluster.start()
        await cluster.write(b"a")
        cluster.kill((await cluster.elect()).config.node_id)
        await cluster.write(b"b")

    hashes = set()
    for _ in range(2):
        world = World(77, WorldOptions())
        world.run(main)
        hashes.add(world.trace_hash)
    assert len(hashes) == 1


def files_of(cluster: Cluster, n: int) -> dict[str, bytes]:
    disk = cluster.world.node(f"c{n}").disk
    folder = f"/data/{n}/__cluster_metadata-0"
    return {name: disk.read_file(f"{folder}/{name}") for name in disk.list(folder)}


@pytest.mark.parametrize("after_ms", range(0, 60, 3))
def test_log_files_of_a_quorum_do_not_change_after_its_stop_is_complete(after_ms: int) -> None:
    """The stopped node is a leader that was cut off and is just learning of the new epoch, so votes and a truncation
    are in progress."""

    async def main(world: World) -> None:
        cluster = Cluster(world, observers=0)
        cluster.start()
        await cluster.write(b"a")
        old = await cluster.elect()
        number = old.config.node_id
        for n in cluster.voters:
            if n != number:
                world.partition(f"c{number}", f"c{n}")
        quorum = old.quorum
        assert quorum is not None
        quorum.append((b"never committed",))
        await cluster.wait(lambda: cluster.leader not in (None, old))
        await cluster.write(b"b")
        world.heal_all()
        await cluster.wait(lambda: not quorum.is_leader)
        await world.sleep_ms(after_ms)
        await quorum.shutdown()
        files = files_of(cluster, number)
        await world.sleep_ms(1_000)
        assert files_of(cluster, number) == files
        cluster.kill(number)
        cluster.restart(number)
        await cluster.wait(lambda: old.quorum is not None and cluster.have(b"a", b"b"))

    slow = WorldOptions(offload_delay_min_ns=5_000_000, offload_delay_jitter_ns=20_000_000)
    World(after_ms, slow).run(main)


@pytest.mark.parametrize("seed", range(5))
def test_vote_being_persisted_when_a_stop_begins_is_stored_and_answered_before_the_log_closes(
    seed: int,
) -> None:
    async def main(world: World) -> None:
        cluster = Cluster(world, observers=0)
        cluster.start(1)
        await world.sleep_ms(500)
        quorum = cluster.members[1].quorum
        assert quorum is not None
        peers = Peers(world.node("client"), client_id="candidate")
        answers: list[object] = []
        async with trio.open_nursery() as nursery:
            await nursery.start(peers.run)
            for epoch in (50, 60):
                vote = VoteRequest(epoch=epoch, candidate_id=2, last_epoch=40, last_offset=9)
                voter = Peer(1, "CONTROLLER", Address("c1", 9000))
                peers.send(voter, vote, answers.append, timeout_ms=5_000)
                if epoch == 50:
                    await cluster.wait(lambda: quorum.replica is not None and quorum.replica.epoch == 50)
                    nursery.start_soon(quorum.shutdown)
            # Both votes arrive before the stop ends: the first is being written when the second and the stop arrive.
            while quorum.replica is None or quorum.replica.epoch != 60:
                await world.sleep_ms(1)
            while not quorum.is_closed:
                await world.sleep_ms(1)
            await world.sleep_ms(1)
            files = files_of(cluster, 1)
            assert [isinstance(answer, VoteResponse) and answer.vote_granted for answer in answers] == [True, True]
            assert b'"leaderEpoch":60' in files["quorum-state"]
            nursery.cancel_scope.cancel()

    slow = WorldOptions(offload_delay_min_ns=2_000_000, offload_delay_jitter_ns=40_000_000)
    World(seed, slow).run(main)


def test_other_trio_tasks_run_during_the_replay_of_a_large_batch_snapshot_or_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The batch, the snapshot and the log are delivered whole and in order on all nodes. No portion is larger than one
    single oversized batch."""
    monkeypatch.setattr(quorum_delivery, "EVENTS_PER_STEP_MAX", 10)
    large = tuple(f"large-{number}".encode() for number in range(95))
    small = [(f"small-{number}-a".encode(), f"small-{number}-b".encode()) for number in range(40)]

    async def main(world: World) -> None:
        cluster = Cluster(world)
        cluster.start()
        leader = await cluster.elect()
        quorum = leader.quorum
        assert quorum is not None
        quorum.append(large)
        for values in small:
            quorum.append(values)
        expected = [*large, *(value for values in small for value in values)]
        await cluster.wait(lambda: all(one.replica.values == expected for one in cluster.members.values()))
        assert {one.replica.work_ahead for one in cluster.members.values()} == {10}
        again = cluster.members[4]
        cluster.kill(4)
        cluster.restart(4)
        await cluster.wait(lambda: again.quorum is not None and again.replica.values == expected)
        assert again.replica.work_ahead == 10
        for member in cluster.members.values():
            assert member.quorum is not None
            member.quorum.request_snapshot(member.replica.next_offset, member.replica.epoch, [tuple(expected)])
        await world.sleep_ms(500)
        cluster.kill(4)
        cluster.restart(4)
        await cluster.wait(lambda: again.quorum is not None and again.replica.values == expected)
        assert again.replica.snapshots
        assert again.replica.work_ahead == 18
        assert not any(one.replica.gaps for one in cluster.members.values())

    World(5).run(main)
