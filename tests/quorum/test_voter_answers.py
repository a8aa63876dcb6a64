"""Voter changes that the core refuses, and responses of the new voter that the leader does not understand."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
import trio
from structlog.testing import capture_logs

from kraft.controller.controller import Controller
from kraft.controller.request_handlers import REQUESTS
from kraft.node.peers import Peers
from kraft.quorum.voter_changes import NOT_LEADER, AddVoter, UpdateVoter, VoterChanges
from kraft.raft.identity import ReplicaKey, Voter, VoterSet
from kraft.raft.voter_changes import VotersRefused
from kraft.seam import Address, Binding, Seam, Transport
from kraft.sim.world import World
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc import InternalKey, decode_rpc, encode_rpc
from kraft.wire.rpc.controller_messages import ForwardRequest, ForwardResponse
from kraft.wire.rpc.quorum_messages import BeginQuorumEpochResponse
from kraft.wire.server import Request, ServerConnection, ServerLimits
from tests.stages.controllers import Cluster
from tests.stages.tables import replace_row

from .cluster import CLUSTER_ID, config_of
from .voters import Voters, play

LATER_CODE = 9_999
"""An error code of a later release."""
CONFIG = config_of(1, {1: ("n1", 9000)}, "/data/1")


def voter(node_id: int, port: int = 9000) -> Voter:
    return Voter(ReplicaKey(node_id, UUID(int=1000 + node_id)), Address(f"n{node_id}", port))


class RefusingQuorum:
    """Stands in for the quorum: this node leads three voters, and the core refuses every voter change."""

    is_leader = True
    leader_and_epoch = (1, 5)
    own_address = Address("n1", 9000)
    voters = VoterSet((voter(1), voter(2), voter(3)))
    replica = None

    def change_voters(self, voters: VoterSet) -> str:
        return "the voters record at offset 7 is not committed yet"


async def serve_newcomer(seam: Seam) -> None:
    """Answer BeginQuorumEpoch as the new voter, with an error code that this release does not know."""

    def respond(request: Request) -> None:
        request.respond(encode_rpc(BeginQuorumEpochResponse(error_code=LATER_CODE)))

    def accept(transport: Transport) -> ServerConnection:
        return ServerConnection(transport, respond, limits=ServerLimits(), budget=None)

    seam.network.serve(Binding("CONTROLLER", Address("n4", 9000)), accept)
    await trio.sleep_forever()


def outcome_of(asked: AddVoter | UpdateVoter) -> VotersRefused:
    """Return the response of a leader whose core refuses every change; it must leave no connection open."""
    outcomes: list[VotersRefused] = []

    async def main(world: World) -> None:
        world.start("n4", serve_newcomer)
        await world.sleep_ms(1)
        seam = world.node("n1")
        peers = Peers(seam, client_id="n1")
        changes = VoterChanges(CONFIG, RefusingQuorum(), peers, seam.clock, CLUSTER_ID)  # type: ignore[arg-type]
        async with trio.open_nursery() as nursery:
            await nursery.start(peers.run)
            outcomes.append(await changes.change(asked))
            await world.sleep_ms(3_000)
            assert peers.known_peers == []
            nursery.cancel_scope.cancel()

    World(1).run(main)
    return outcomes[0]


def test_update_voter_that_the_core_refuses_is_reported_as_an_error() -> None:
    outcome = outcome_of(UpdateVoter(voter(2, port=9999), 5))
    assert outcome.code is ErrorCode.REQUEST_TIMED_OUT
    assert "offset 7" in outcome.message


def test_add_voter_is_refused_if_the_new_voter_answers_an_unknown_code() -> None:
    outcome = outcome_of(AddVoter(voter(4), 1_000))
    assert outcome == VotersRefused(ErrorCode.REQUEST_TIMED_OUT, "node 4 answered UNKNOWN_SERVER_ERROR")


@pytest.mark.parametrize("timeout_ms", [0, 1, 1_000])
def test_add_voter_at_an_unreachable_address_leaves_no_connection_open(timeout_ms: int) -> None:
    outcome = outcome_of(AddVoter(voter(4, port=9001), timeout_ms))
    assert outcome.code is ErrorCode.REQUEST_TIMED_OUT


def test_add_voter_whose_new_voter_answers_too_late_leaves_no_connection_open() -> None:
    assert outcome_of(AddVoter(voter(4), 1)).code is ErrorCode.REQUEST_TIMED_OUT


def join_answer(code: int) -> bytes:
    response = messages.build(messages.response_class(ApiKey.ADD_RAFT_VOTER), error_code=code)
    return messages.encode_response(ApiKey.ADD_RAFT_VOTER, messages.newest_version(ApiKey.ADD_RAFT_VOTER), response)


def test_joining_controller_survives_unknown_error_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        ForwardResponse(error_code=LATER_CODE),
        ForwardResponse(body=b"\xff"),
        ForwardResponse(body=join_answer(LATER_CODE)),
    ]
    handle: Callable[[Controller, Request], None] = REQUESTS[InternalKey.FORWARD]

    def answer(controller: Controller, request: Request) -> None:
        asked = decode_rpc(ForwardRequest, request.api_version, request.body)
        if answers and asked.forwarded_key == ApiKey.ADD_RAFT_VOTER:
            request.respond(encode_rpc(answers.pop(0)))
        else:
            handle(controller, request)

    async def work(voters: Voters) -> None:
        await voters.wait_reported(101, 102)
        assert not answers

    replace_row(monkeypatch, REQUESTS, InternalKey.FORWARD, answer)
    play(work, controllers=2, first=(101,), controller_quorum_auto_join_enable="true")


def test_voter_change_on_a_controller_that_does_not_run_is_answered_not_controller() -> None:
    """This applies before `run`, after `run`, and when `run` ends while a change is in progress."""
    outcomes: list[VotersRefused] = []
    asked = AddVoter(voter(4), 60_000)

    async def main(world: World) -> None:
        cluster = Cluster(world, controllers=1, brokers=0)
        cluster.start()
        await cluster.wait(lambda: cluster.active is not None)
        serving = cluster.active
        assert serving is not None
        seam = world.node("c109")
        controller = Controller(
            serving.config, seam, serving.quorum, serving.publisher, serving.peers, cluster_id=serving.cluster_id
        )
        controller.start_voter_change(asked, outcomes.append)
        assert outcomes == [NOT_LEADER]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(controller.run)
            await world.sleep_ms(1)
            controller.voter_changes = NeverCommittingChanges()  # type: ignore[assignment]
            controller.start_voter_change(asked, outcomes.append)
            await world.sleep_ms(1)
            assert len(outcomes) == 1
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):  # also between the end of its last child task and its own end
                for steps in range(8):
                    for _ in range(steps):
                        await trio.lowlevel.checkpoint()
                    controller.start_voter_change(asked, outcomes.append)
        assert outcomes == [NOT_LEADER] * 10
        controller.start_voter_change(asked, outcomes.append)
        assert outcomes == [NOT_LEADER] * 11

    World(1).run(main)


def test_unexpected_error_in_a_voter_change_is_answered_and_the_controller_continues() -> None:
    outcomes: list[VotersRefused] = []

    async def main(world: World) -> None:
        cluster = Cluster(world, controllers=1, brokers=0)
        cluster.start()
        await cluster.wait(lambda: cluster.active is not None)
        serving = cluster.active
        assert serving is not None
        honest, serving.voter_changes = serving.voter_changes, FailingChanges()  # type: ignore[assignment]
        with capture_logs() as logs:
            serving.start_voter_change(AddVoter(voter(4), 60_000), outcomes.append)
            await world.sleep_ms(1)
        assert [one["log_level"] for one in logs if one["event"] == "change of the voters failed"] == ["error"]
        assert outcomes[0].code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert "KeyError('a bug')" in outcomes[0].message
        serving.voter_changes = honest
        serving.start_voter_change(UpdateVoter(voter(4), -1), outcomes.append)
        await world.sleep_ms(1)
        assert outcomes[1].code is ErrorCode.FENCED_LEADER_EPOCH
        assert cluster.active is serving

    World(1).run(main)


class FailingChanges:
    """Stands in for VoterChanges: every change raises an unexpected error."""

    async def change(self, asked: AddVoter) -> VotersRefused:
        await trio.lowlevel.checkpoint()
        raise KeyError("a bug")


class NeverCommittingChanges:
    """Stands in for VoterChanges: no change ever gets its majority."""

    async def change(self, asked: AddVoter) -> VotersRefused:
        await trio.sleep_forever()
