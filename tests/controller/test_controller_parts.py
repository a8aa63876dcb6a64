"""Parts of a controller by themselves: periodic work, its registration, and its own entry among the voters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kraft.config import NodeConfig
from kraft.control import ElectLeaderless, FenceBrokers, RebalanceLeaders, RegisterControllerCommand
from kraft.controller.own_registration import OwnRegistration
from kraft.controller.periodic_work import FENCE_AGAIN_MS, PeriodicWork
from kraft.controller.voter_membership import VoterMembership
from kraft.image import Endpoint
from kraft.raft.identity import ReplicaKey, Voter
from kraft.seam import Address
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.images import image_of, three_brokers
from tests.stages.part_stage import PartStage, play

IMAGE = image_of(*three_brokers())
CONFIG = NodeConfig.parse(
    {
        "process.roles": "controller",
        "node.id": "7",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://localhost:9093",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "log.dirs": "/data",
        "controller.quorum.auto.join.enable": "true",
    }
)
IDS: dict[str, Any] = {"cluster_id": "cluster", "incarnation_id": UUID(int=9)}


class FakeQueue:
    """Stands in for the command queue; `image` is None on a standby."""

    def __init__(self) -> None:
        self.image: Any = IMAGE
        self.submitted: list[Any] = []
        self.being_fenced: frozenset[int] = frozenset()
        self.submit = self.submit_first = self.submitted.append

    @property
    def is_active(self) -> bool:
        return self.image is not None

    def brokers_being_fenced(self) -> frozenset[int]:
        return self.being_fenced


class FakeSessions:
    """Stands in for the controller's sessions; `targets` are the brokers with expired sessions."""

    def __init__(self) -> None:
        self.targets: list[Any] = []

    def next_deadline_ms(self, image: Any, but: Any) -> int | None:
        return 5

    def expired(self, image: Any, now_ms: int) -> list[Any]:
        return self.targets

    def end_recent_fences(self, now_ms: int) -> bool:
        return False


def test_expired_sessions_are_fenced_in_one_plan_unless_already_being_fenced() -> None:
    line, sessions = FakeQueue(), FakeSessions()
    periodic = PeriodicWork(CONFIG, line, sessions, lambda: IMAGE)  # type: ignore[arg-type]
    sessions.targets = [SimpleNamespace(broker_id=number) for number in (1, 2, 3)]
    line.being_fenced = frozenset({2})
    periodic.run_due(10)
    (fence,) = line.submitted
    assert isinstance(fence, FenceBrokers)
    assert [target.broker_id for target in fence.targets] == [1, 3]
    assert periodic.sessions_expired == 2
    periodic.fence_failed(10)
    periodic.run_due(11)
    assert len(line.submitted) == 1, "not again before a while is over"
    assert periodic.deadlines_ms() == [10 + FENCE_AGAIN_MS]


def test_leaderless_elections_run_periodically_and_only_on_the_active_controller() -> None:
    line = FakeQueue()
    periodic = PeriodicWork(CONFIG, line, FakeSessions(), lambda: IMAGE)  # type: ignore[arg-type]
    periodic.begin(0)
    rebalance_ms, unclean_ms, _ = periodic.deadlines_ms()
    periodic.run_due(max(rebalance_ms, unclean_ms))
    assert [type(command) for command in line.submitted] == [ElectLeaderless], "nothing is imbalanced"
    assert RebalanceLeaders not in map(type, line.submitted)
    line.image = None
    assert periodic.deadlines_ms() == []


class FakePeers:
    """Stands in for the pool of connections to other nodes; records the requests sent to the active controller."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Any]] = []
        self.error = ErrorCode.NONE

    async def request(self, peer: Any, message: Any, **_: Any) -> Any:
        self.asked.append((peer.node_id, message))
        return SimpleNamespace(error_code=self.error, error_message=None, body=b"")


def quorum_of(**members: Any) -> Any:
    described = SimpleNamespace(endpoints=((8, "eight", 9093),))
    return SimpleNamespace(describe=lambda: described, **members)


@pytest.mark.parametrize(("leader_id", "is_active"), [(7, True), (8, False)])
def test_controller_registers_with_the_active_controller_or_with_itself(leader_id: int, is_active: bool) -> None:
    async def test(stage: PartStage) -> None:
        line, peers = FakeQueue(), FakePeers()
        line.image = IMAGE if is_active else None
        publisher: Any = SimpleNamespace(leader_id=leader_id, image=IMAGE)
        registration = OwnRegistration(
            CONFIG,
            stage.loop.clock,
            quorum_of(),
            publisher,
            peers,  # type: ignore[arg-type]
            line,  # type: ignore[arg-type]
            **IDS,
        )
        stage.loop.start_task(registration.run)
        await stage.finish_tasks()
        assert (line.submitted, peers.asked) == ([], []), "its listeners are not bound yet"
        registration.listening((Endpoint("CONTROLLER", "seven", 9093),))
        await stage.finish_tasks()
        if is_active:
            (command,) = line.submitted
            assert isinstance(command, RegisterControllerCommand)
            assert (command.controller_id, peers.asked) == (7, [])
        else:
            assert [(node_id, message.controller_id) for node_id, message in peers.asked] == [(8, 7)]

    play(test)


@pytest.mark.parametrize("is_voter", [False, True])
def test_controller_outside_the_voter_set_sends_add_raft_voter(is_voter: bool) -> None:
    async def test(stage: PartStage) -> None:
        own, key = Address("seven", 9093), ReplicaKey(7, UUID(int=5))
        voters = SimpleNamespace(is_configured=False, find=lambda node_id: Voter(key, own) if is_voter else None)
        quorum = quorum_of(voters=voters, own_address=own, own_key=key, leader_and_epoch=(8, 3))
        peers: Any = FakePeers()
        peers.error = ErrorCode.NOT_CONTROLLER
        stage.loop.start_task(VoterMembership(CONFIG, stage.loop.clock, quorum, peers, "cluster").run)
        await stage.world.sleep_ms(1_500)
        asked = [(node_id, message.forwarded_key) for node_id, message in peers.asked]
        assert asked == ([] if is_voter else [(8, ApiKey.ADD_RAFT_VOTER)])

    play(test)
