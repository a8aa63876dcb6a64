"""Quorums whose configuration names no voters: the first voters come from the checkpoint that formatting writes."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraft.config import ConfigError, NodeConfig
from kraft.quorum.bootstrap_voters import (
    BadVoters,
    own_voter_directory,
    parse_initial_controllers,
    require_one_source_of_voters,
    standalone_voters,
    write_bootstrap_checkpoint,
)
from kraft.raft.identity import ReplicaKey, Voter, VoterSet
from kraft.seam import Address
from kraft.sim.world import World
from kraft.storage.partition_metadata import encode_uuid

from .cluster import Member
from .test_quorum_in_world import Cluster


def directory(n: int) -> UUID:
    return UUID(int=0x1000_0000_0000_0000 + n)


def first(*ids: int) -> VoterSet:
    return VoterSet(tuple(Voter(ReplicaKey(n, directory(n)), Address(f"c{n}", 9000)) for n in ids))


def dynamic_config(n: int, servers: str, *, is_controller: bool, **extra: str) -> NodeConfig:
    properties = {
        "node.id": str(n),
        "log.dirs": f"/data/{n}",
        "controller.quorum.bootstrap.servers": servers,
        "controller.listener.names": "CONTROLLER",
        "process.roles": "controller" if is_controller else "broker",
        "listeners": f"CONTROLLER://c{n}:9000" if is_controller else "PLAINTEXT://localhost:19092",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    }
    return NodeConfig.parse({**properties, **{key.replace("_", "."): value for key, value in extra.items()}})


class DynamicCluster(Cluster):
    """Controllers 1 to 3, of which `first_voters` form the quorum, and an observer. All are configured only with the
    bootstrap servers `servers`."""

    def __init__(
        self, world: World, first_voters: VoterSet, servers: str = "c1:9000,c2:9000,c3:9000", **extra: str
    ) -> None:
        self.world = world
        self.voters = first_voters.ids
        self.members = {
            n: Member(dynamic_config(n, servers, is_controller=n <= 3, **extra), directory(n)) for n in (1, 2, 3, 4)
        }
        self.first_voters = first_voters

    def format(self) -> None:
        for n in self.first_voters.ids:
            seam = self.world.node(f"c{n}")
            write_bootstrap_checkpoint(seam.disk, self.members[n].config, self.first_voters, seam.clock.wall_ms())


def test_quorum_forms_from_its_first_checkpoint_and_all_nodes_learn_the_voters_from_the_log() -> None:
    async def main(world: World) -> None:
        cluster = DynamicCluster(world, first(1, 2, 3))
        cluster.format()
        cluster.start()
        assert await cluster.wait(lambda: cluster.leader is not None) < 500
        await cluster.write(b"a")
        await cluster.wait(lambda: cluster.have(b"a"))
        for member in cluster.members.values():
            assert member.quorum is not None
            assert member.quorum.voters == first(1, 2, 3)
            # The checkpoint holds no events, so there is no state to load.
            assert member.replica.snapshots == []
        for n in cluster.members:
            cluster.kill(n, power=True)
        for n in cluster.members:
            cluster.restart(n)
        await cluster.write(b"b")
        await cluster.wait(lambda: cluster.have(b"a", b"b"))

    World(1).run(main)


@pytest.mark.parametrize("seed", range(4))
def test_observer_configured_with_one_bootstrap_server_finds_every_leader(seed: int) -> None:
    async def main(world: World) -> None:
        cluster = DynamicCluster(world, first(1, 2, 3), "c2:9000")
        cluster.format()
        cluster.start()
        await cluster.write(b"a")
        await cluster.wait(lambda: cluster.have(b"a"))
        old = await cluster.elect()
        cluster.kill(old.config.node_id)
        await cluster.write(b"b")
        await cluster.wait(lambda: cluster.have(b"a", b"b"))

    World(seed).run(main)


def test_standalone_controller_forms_a_quorum_that_other_controllers_observe() -> None:
    async def main(world: World) -> None:
        cluster = DynamicCluster(world, first(2), "c2:9000")
        cluster.format()
        cluster.start(2)
        assert await cluster.wait(lambda: cluster.leader is not None) < 100
        cluster.start(1, 3, 4)
        await cluster.write(b"a")
        await cluster.wait(lambda: cluster.have(b"a"))
        assert cluster.leader is cluster.members[2]
        # Controllers that are not voters never start an election.
        cluster.kill(2)
        await world.sleep_ms(5_000)
        assert cluster.leader is None
        assert {member.quorum.leader_and_epoch[1] for member in cluster.members.values() if member.quorum} == {1}

    World(2).run(main)


def test_no_leader_is_elected_without_first_voters() -> None:
    async def main(world: World) -> None:
        cluster = DynamicCluster(world, first())
        cluster.start()
        await world.sleep_ms(5_000)
        assert cluster.leader is None

    World(2).run(main)


def test_first_voter_with_a_wiped_disk_is_another_replica_and_does_not_vote() -> None:
    async def main(world: World) -> None:
        cluster = DynamicCluster(world, first(1, 2, 3))
        cluster.format()
        cluster.start()
        await cluster.write(b"a")
        wiped = next(n for n in cluster.voters if cluster.members[n] is not cluster.leader)
        cluster.kill(wiped)
        world.node(f"c{wiped}").disk.remove_tree(f"/data/{wiped}")
        cluster.members[wiped].directory_id = UUID(int=99 << 64)
        cluster.restart(wiped)
        await cluster.write(b"b")
        await cluster.wait(lambda: cluster.have(b"a", b"b"))
        core = cluster.members[wiped].quorum
        assert core is not None
        assert core.replica is not None
        assert not core.replica.is_voter
        other = next(n for n in cluster.voters if n != wiped and cluster.members[n] is not cluster.leader)
        cluster.kill(other)
        await world.sleep_ms(10_000)
        assert cluster.leader is None, "one voter of three leads with the help of a replica that is no voter"

    World(3).run(main)


def test_first_voters_survive_the_removal_of_their_checkpoint() -> None:
    """A snapshot replaces the checkpoint and the log that hold the voters."""

    async def main(world: World) -> None:
        small = {"internal_metadata_log_segment_bytes": "2048", "metadata_max_retention_bytes": "1"}
        cluster = DynamicCluster(world, first(1, 2, 3), **small)
        cluster.format()
        cluster.start()
        values: list[bytes] = []
        for round_number in range(3):
            for number in range(30):
                values.append(b"%d/%d %s" % (round_number, number, b"x" * 100))
                await cluster.write(values[-1])
            for member in cluster.members.values():
                assert member.quorum is not None
                replica = member.replica
                await cluster.wait(lambda replica=replica: replica.values == values)
                member.quorum.request_snapshot(replica.next_offset, replica.epoch, [tuple(values)])
            await world.sleep_ms(500)
        for n in (1, 2, 3):
            seam = cluster.members[n].seam
            assert seam is not None
            names = seam.disk.list(f"/data/{n}/__cluster_metadata-0")
            assert f"{0:020d}.log" not in names
            assert f"{0:020d}-{0:010d}.checkpoint" not in names
            cluster.kill(n)
            cluster.restart(n)
        await cluster.write(b"after")
        await cluster.wait(lambda: cluster.have(*values, b"after"))
        assert all(
            member.quorum is not None and member.quorum.voters == first(1, 2, 3) for member in cluster.members.values()
        )

    World(4).run(main)


def test_initial_controllers_are_parsed_in_kafkas_format() -> None:
    text = f"1@c1:9000:{encode_uuid(directory(1))}, 2@[::1]:9001:{encode_uuid(directory(2))}"
    voters = parse_initial_controllers(text)
    assert voters == VoterSet(
        (
            Voter(ReplicaKey(1, directory(1)), Address("c1", 9000)),
            Voter(ReplicaKey(2, directory(2)), Address("::1", 9001)),
        )
    )
    good = encode_uuid(directory(1))
    for bad in ("1", "1@c1", "1@c1:9000", f"c1:9000:{good}", f"x@c1:9000:{good}", f"1@c1:0:{good}", "1@c1:9000:short"):
        with pytest.raises(BadVoters, match="expected ID@HOST:PORT:DIRECTORY-ID"):
            parse_initial_controllers(bad)
    with pytest.raises(BadVoters, match="occurs twice"):
        parse_initial_controllers(f"1@c1:9000:{good},1@c2:9000:{good}")


def test_format_rejects_first_voters_that_do_not_match_the_controller() -> None:
    config = dynamic_config(1, "c1:9000", is_controller=True)
    assert standalone_voters(config, directory(1)) == first(1)
    assert own_voter_directory(config, first(1, 2)) == directory(1)
    with pytest.raises(BadVoters, match="is not among the first voters"):
        own_voter_directory(config, first(2, 3))
    moved = VoterSet((Voter(ReplicaKey(1, directory(1)), Address("c1", 9999)),))
    with pytest.raises(BadVoters, match="name port 9999 for node 1"):
        own_voter_directory(config, moved)


def test_first_voters_must_be_named_by_exactly_one_of_config_and_command_line() -> None:
    controller = dynamic_config(1, "c1:9000", is_controller=True)
    require_one_source_of_voters(controller, has_choice=True)
    with pytest.raises(ConfigError, match="--standalone"):
        require_one_source_of_voters(controller, has_choice=False)
    require_one_source_of_voters(dynamic_config(4, "c1:9000", is_controller=False), has_choice=False)
    named = NodeConfig.parse({**controller.properties, "controller.quorum.voters": "1@c1:9000"})
    require_one_source_of_voters(named, has_choice=False)
    with pytest.raises(ConfigError, match="names the voters already"):
        require_one_source_of_voters(named, has_choice=True)
