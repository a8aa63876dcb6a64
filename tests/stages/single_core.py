"""One Raft core without a network and disk, in the state that a test needs. The test passes messages to it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kraft.raft.identity import Identity, ReplicaKey, Voter, VoterSet
from kraft.raft.inputs import (
    AppendRequested,
    Input,
    LogSynced,
    RequestReceived,
    ResponseReceived,
    Tick,
)
from kraft.raft.log_view import BatchSummary, LogView, SnapshotId
from kraft.raft.raft import Raft
from kraft.raft.ready import QuorumState, Ready, Reply, ReplyWithRecords, ReplyWithSnapshot, Send
from kraft.raft.settings import RaftSettings
from kraft.raft.state import Follower
from kraft.seam import Address
from kraft.sim.cores.driver import CLUSTER
from kraft.sim.cores.heap import Chance
from kraft.wire.rpc.quorum_messages import BeginQuorumEpochRequest, MetadataFetchRequest, VoteRequest, VoteResponse

ME, A, B, C = 1, 2, 3, 4


def directory(node_id: int) -> UUID:
    return UUID(int=node_id)


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, directory(node_id))


def voter_set(*node_ids: int, directories: bool = False) -> VoterSet:
    return VoterSet(tuple(Voter(key(n) if directories else ReplicaKey(n), Address(f"n{n}", 9000)) for n in node_ids))


class Single:
    """A Raft core with its own clock. `last` is the last Ready that it has returned."""

    def __init__(
        self,
        *,
        voters: VoterSet | None = None,
        stored: QuorumState | None = None,
        epochs: tuple[tuple[int, int], ...] = (),
        end_offset: int = 0,
        start: SnapshotId | None = None,
        may_vote: bool = True,
        me: int = ME,
        settings: RaftSettings | None = None,
        seed: int = 0,
    ) -> None:
        log = LogView.recovered(
            voters or voter_set(ME, A, B),
            start_offset=0 if start is None else start.end_offset,
            end_offset=end_offset,
            epochs=epochs,
            snapshots=[] if start is None else [start],
        )
        identity = Identity(key(me), CLUSTER, may_vote, Address(f"n{me}", 9000))
        self.settings = settings or RaftSettings()
        self.raft = Raft(identity, self.settings, log, stored or QuorumState())
        self.chance = Chance(seed)
        self.now = 1000
        self._tokens = 0
        self.last: Ready = self.raft.start(self.now, self.chance)
        self.sent: list[Send] = list(self.last.sends)

    def step(self, event: Input) -> Ready:
        self.last = self.raft.step(event, self.now, self.chance)
        self.sent.extend(self.last.sends)
        return self.last

    def tick(self, after: int = 0) -> Ready:
        """Advance the clock, but not beyond the core's deadline, and tick the core."""
        self.now += after
        return self.step(Tick())

    def tick_to_deadline(self) -> Ready:
        assert self.last.deadline_ms is not None
        self.now = max(self.now, self.last.deadline_ms)
        return self.step(Tick())

    def ask(self, request: Any) -> Any:
        """Pass a request to the core. Return its response; None if the response is pending."""
        self._tokens += 1
        token = self._tokens
        ready = self.step(RequestReceived(token, request))
        for answer in ready.answers:
            assert isinstance(answer, Reply | ReplyWithRecords | ReplyWithSnapshot)
            if answer.token == token:
                return answer.response
        return None

    def answer(self, send: Send, response: Any, batches: tuple[BatchSummary, ...] = ()) -> Ready:
        return self.step(ResponseReceived(send.request_id, response, batches))

    def sync(self) -> Ready:
        return self.step(LogSynced(self.raft.log.end_offset, self.raft.log.generation))

    def append(self, count: int = 1) -> Ready:
        return self.step(AppendRequested((b"x",) * count))

    def take_sent(self, kind: type[Any]) -> list[Send]:
        """Return the messages of this kind sent since the last call, oldest first."""
        found = [send for send in self.sent if isinstance(send.request, kind)]
        self.sent = [send for send in self.sent if not isinstance(send.request, kind)]
        return found

    # reaching a role

    def become_prospective(self) -> None:
        while not self.take_if_asking():
            self.tick_to_deadline()

    def take_if_asking(self) -> bool:
        return any(isinstance(send.request, VoteRequest) for send in self.sent)

    def become_candidate(self) -> list[Send]:
        self.become_prospective()
        for send in self.take_sent(VoteRequest):
            self.answer(send, VoteResponse(epoch=self.raft.epoch, vote_granted=True))
        asked = [send for send in self.take_sent(VoteRequest) if not send.request.pre_vote]  # type: ignore[union-attr]
        assert asked
        return asked

    def become_leader(self) -> None:
        for send in self.become_candidate():
            if not self.raft.is_leader:
                self.answer(send, VoteResponse(epoch=self.raft.epoch, vote_granted=True))
        assert self.raft.is_leader

    def follow(self, leader: int, epoch: int) -> Any:
        return self.ask(
            BeginQuorumEpochRequest(
                cluster_id=CLUSTER,
                voter_id=ME,
                epoch=epoch,
                leader_id=leader,
                leader_host=f"n{leader}",
                leader_port=9000,
            )
        )

    def fetch_of(self, node_id: int, offset: int, last_epoch: int, **changes: Any) -> Any:
        """Pass a fetch of another node to the core. Return the response; None if it is pending."""
        fields: dict[str, Any] = {
            "cluster_id": CLUSTER,
            "replica_id": node_id,
            "replica_directory_id": directory(node_id),
            "epoch": self.raft.epoch,
            "fetch_offset": offset,
            "last_fetched_epoch": last_epoch,
            "max_wait_ms": 500,
            "max_bytes": 1000,
        }
        return self.ask(MetadataFetchRequest(**{**fields, **changes}))

    def vote_of(self, candidate: int, epoch: int, last_epoch: int, offset: int, **changes: Any) -> VoteResponse:
        fields: dict[str, Any] = {
            "cluster_id": CLUSTER,
            "voter_id": ME,
            "voter_directory_id": directory(ME),
            "epoch": epoch,
            "candidate_id": candidate,
            "candidate_directory_id": directory(abs(candidate)),
            "last_epoch": last_epoch,
            "last_offset": offset,
        }
        response = self.ask(VoteRequest(**{**fields, **changes}))
        assert isinstance(response, VoteResponse)
        return response


# initial states that many tests use


def leading(**arguments: Any) -> Single:
    single = Single(**arguments)
    single.become_leader()
    return single


def committed(single: Single) -> int | None:
    return single.raft.high_watermark


def following(**arguments: Any) -> Single:
    arguments.setdefault("stored", QuorumState(3, A))
    arguments.setdefault("epochs", ((1, 0), (3, 10)))
    arguments.setdefault("end_offset", 20)
    single = Single(**arguments)
    assert isinstance(single.raft.role, Follower)
    return single


def fetch(single: Single) -> Any:
    """Return the fetch that the core has in flight."""
    return single.take_sent(MetadataFetchRequest)[-1]
