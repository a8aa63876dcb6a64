"""The state of one replica, and the outbox that a step fills. Behaviour is in the modules of the roles.

Durable state is (epoch, leader, vote) in `QuorumState`, and the log. A crash loses everything else. `high_watermark`
never decreases while a core exists.
"""

from __future__ import annotations

from typing import Any, TypeVar

from kraft.raft.identity import Identity, OwnMembership, VoterSet
from kraft.raft.log_view import LogView
from kraft.raft.ready import (
    Alert,
    AlertKind,
    Answer,
    Destination,
    Leadership,
    LogAction,
    Purpose,
    QuorumState,
    Ready,
    Send,
    SnapshotChunk,
)
from kraft.raft.settings import EPOCH_MAX, RaftSettings
from kraft.raft.state import NEVER, FastCampaign, FetchLoop, InFlightRequest, Leader, Resigned, Role, Unattached
from kraft.seam import Address, Random
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.quorum_messages import HOST_CHARACTERS_MAX, QuorumRequest, QuorumResponse

Response = TypeVar("Response", bound=QuorumResponse)


class Outbox:
    """Effects that the current step has collected so far; see `Ready` for their meaning and order."""

    __slots__ = (
        "alerts",
        "answers",
        "chunk",
        "discard_download",
        "high_watermark",
        "log",
        "pass_wanted",
        "redial",
        "refusal",
        "sends",
    )

    def __init__(self) -> None:
        self.log: list[LogAction] = []
        self.answers: list[Answer] = []
        self.sends: list[Send] = []
        self.discard_download = False
        self.chunk: SnapshotChunk | None = None
        self.redial: Destination | None = None
        self.high_watermark: int | None = None
        self.pass_wanted = False
        self.refusal: str | None = None
        self.alerts: list[Alert] = []


class Core:
    __slots__ = (
        "_membership",
        "_reported_leadership",
        "_written",
        "bootstrap",
        "epoch",
        "fast_campaign",
        "fetch",
        "high_watermark",
        "identity",
        "is_stopping",
        "leader_address",
        "leader_id",
        "log",
        "next_request_id",
        "node_id",
        "now_ms",
        "out",
        "outstanding",
        "random",
        "role",
        "rounds_lost",
        "settings",
        "stop_by_ms",
        "voted",
    )

    def __init__(
        self,
        identity: Identity,
        settings: RaftSettings,
        log: LogView,
        stored: QuorumState,
        bootstrap: tuple[Address, ...],
    ) -> None:
        self.identity = identity
        self.node_id = identity.key.node_id
        self.settings = settings
        self.log = log
        self.bootstrap = bootstrap
        self.epoch = stored.epoch
        self.voted = stored.voted
        self.leader_id = stored.leader_id
        self.leader_address: Address | None = None
        self.role: Role = Unattached(NEVER)
        self.high_watermark: int | None = None
        self.fetch = FetchLoop()
        self.fast_campaign: FastCampaign | None = None
        self.rounds_lost = 0
        self.is_stopping = False
        self.stop_by_ms = NEVER
        self.outstanding: dict[int, InFlightRequest] = {}
        self.next_request_id = 1
        self.now_ms = 0
        self.random: Random
        self.out = Outbox()
        self._membership = identity.membership_among(log.voters.latest)
        self._written = stored
        self._reported_leadership: Leadership | None = None

    # own identity

    @property
    def voters(self) -> VoterSet:
        """The latest voter set in the log, committed or not."""
        return self.log.voters.latest

    @property
    def membership(self) -> OwnMembership:
        """This replica's membership in the latest voter set."""
        voters = self.log.voters.latest
        if self._membership.voters is not voters:
            self._membership = self.identity.membership_among(voters)
        return self._membership

    @property
    def is_voter(self) -> bool:
        return self.membership.is_voter

    @property
    def other_voters(self) -> tuple[int, ...]:
        return self.membership.other_ids

    @property
    def is_sole_voter(self) -> bool:
        return self.membership.is_sole_voter

    # what responses report

    @property
    def named_leader(self) -> tuple[int, str, int]:
        """(id, host, port) of the leader for responses. The id is -1 if the leader is unknown or is this node after it
        resigned. A host that is too long for a response (from a peer or from a voter in the log) is left out."""
        if self.leader_id is None or isinstance(self.role, Resigned):
            return (-1, "", -1)
        address = self.address_of(self.leader_id)
        if address is None or len(address.host) > HOST_CHARACTERS_MAX:
            return (self.leader_id, "", -1)
        return (self.leader_id, address.host, address.port)

    def address_of(self, node_id: int) -> Address | None:
        if node_id == self.node_id and self.identity.address is not None:
            return self.identity.address
        if node_id == self.leader_id and self.leader_address is not None:
            return self.leader_address
        voter = self.voters.find(node_id)
        return None if voter is None else voter.address

    def answer_as(self, cls: type[Response], error: ErrorCode, **fields: Any) -> Response:
        """Build a response with this node's epoch and leader. A request of another cluster gets only this
        cluster's id."""
        if error is ErrorCode.INCONSISTENT_CLUSTER_ID:
            return cls(error_code=error, cluster_id=self.identity.cluster_id)
        leader_id, host, port = self.named_leader
        return cls(
            error_code=error, epoch=self.epoch, leader_id=leader_id, leader_host=host, leader_port=port, **fields
        )

    # random deadlines

    def election_timeout(self) -> int:
        """Draw a random election deadline in [now + T, now + 2T), where T is the election timeout."""
        timeout = self.settings.election_timeout_ms
        return self.now_ms + timeout + self.random.below(timeout)

    def first_fast_round(self) -> int:
        """Return when a voter without a live leader starts its first pre-vote round: from now, after a delay that grows
        with its rank among the voters, plus jitter."""
        others = [node_id for node_id in self.voters.ids if node_id != self.leader_id]
        rank = others.index(self.node_id) if self.node_id in others else len(others)
        return self.now_ms + rank * self.settings.rank_step_ms + self.random.below(self.settings.jitter_ms + 1)

    def next_fast_round(self) -> int:
        """Return when a voter without a live leader repeats a lost pre-vote round: after 20 to 50 ms, doubling up to
        the election timeout."""
        settings = self.settings
        if self.fast_campaign is None:
            self.fast_campaign = FastCampaign()
        factor = 1 << min(self.fast_campaign.rounds, 10)
        self.fast_campaign.rounds += 1
        spread = settings.fast_round_max_ms - settings.fast_round_min_ms
        wait = settings.fast_round_min_ms * factor + self.random.below(spread * factor + 1)
        return self.now_ms + min(wait, settings.election_timeout_ms)

    def next_candidacy(self) -> int:
        """Return when a candidate that lost retries: about 20 ms * 2^n from now."""
        factor = 1 << min(self.rounds_lost, 10)
        self.rounds_lost += 1
        base = min(self.settings.lost_round_retry_ms * factor, self.settings.election_backoff_max_ms)
        return self.now_ms + base // 2 + self.random.below(base * 2)

    # effects

    def send(self, node_id: int, address: Address, purpose: Purpose, request: QuorumRequest) -> int:
        request_id = self.next_request_id
        self.next_request_id += 1
        self.outstanding[request_id] = InFlightRequest(node_id, type(request), self.log.generation)
        destination = Destination(node_id, address)
        self.out.sends.append(Send(request_id, destination, purpose, request, self.settings.request_timeout_ms))
        return request_id

    def alert_if_last_epoch(self) -> bool:
        """Return whether the last possible epoch is reached, so that no election can be held. If it is reached, alert
        the operator."""
        if self.epoch < EPOCH_MAX:
            return False
        text = f"epoch {EPOCH_MAX} is the last possible one; elections do not get that far, so a forged message set it"
        remedy = "stop every node, brokers too, delete quorum-state in its metadata directory, and start them again"
        self.alert(AlertKind.EPOCHS_USED_UP, f"{text}; {remedy}")
        return True

    def alert(self, kind: AlertKind, text: str) -> None:
        self.out.alerts.append(Alert(kind, text))

    def send_to_voter(self, node_id: int, request: QuorumRequest) -> None:
        address = self.address_of(node_id)
        if address is not None:
            self.send(node_id, address, Purpose.ELECTION, request)

    def has_request_in_flight(self, node_id: int, kind: type[QuorumRequest]) -> bool:
        """Return whether a request of this kind to this node is in flight."""
        return any(sent.node_id == node_id and sent.kind is kind for sent in self.outstanding.values())

    def forget_all_requests_but_fetch(self) -> None:
        """Forget all requests in flight except the fetch: late responses to them are dropped."""
        fetch = self.outstanding.get(self.fetch.request_id or 0)
        self.outstanding.clear()
        if fetch is not None and self.fetch.request_id is not None:
            self.outstanding[self.fetch.request_id] = fetch

    def forget_requests(self) -> None:
        """Forget all requests in flight: late responses are dropped."""
        self.outstanding.clear()
        self.fetch = FetchLoop()

    def raise_high_watermark(self, offset: int) -> None:
        if self.high_watermark is None or offset > self.high_watermark:
            self.high_watermark = offset
            self.out.high_watermark = offset

    def take_ready(self, deadline_ms: int, *, may_stop: bool) -> Ready:
        """Return all effects of this step, and start an empty outbox for the next one."""
        out, self.out = self.out, Outbox()
        log = self.log
        # Positional arguments: with fifteen keywords the call would cost as much as the tuple itself, at every step.
        return Ready(
            self._state_to_write(),
            tuple(out.log) if out.log else (),
            out.discard_download,
            out.chunk,
            tuple(out.answers) if out.answers else (),
            tuple(out.sends) if out.sends else (),
            out.redial,
            self._leadership_to_report(),
            out.high_watermark,
            self.identity.may_vote and log.synced_end_offset < log.end_offset,
            out.pass_wanted,
            may_stop,
            out.refusal,
            tuple(out.alerts) if out.alerts else (),
            None if deadline_ms >= NEVER else deadline_ms,
        )

    def _state_to_write(self) -> QuorumState | None:
        state = self._written
        is_same_vote = state.voted is self.voted or state.voted == self.voted
        if is_same_vote and state.epoch == self.epoch and state.leader_id == self.leader_id:
            return None
        self._written = QuorumState(self.epoch, self.leader_id, self.voted)
        return self._written

    def _leadership_to_report(self) -> Leadership | None:
        told, role = self._reported_leadership, self.role
        if isinstance(role, Leader):
            if told is not None and told.is_local and told.epoch == self.epoch:
                return None
            self._reported_leadership = Leadership(self.node_id, self.epoch, True, role.epoch_start_offset)
            return self._reported_leadership
        known = self.leader_id if self.leader_id != self.node_id else None
        if told is not None and told.epoch == self.epoch and told.leader_id == known and not told.is_local:
            return None
        self._reported_leadership = Leadership(known, self.epoch, False)
        return self._reported_leadership
