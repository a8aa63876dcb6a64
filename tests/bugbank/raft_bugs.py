"""Mutations of the raft core: B01 to B15, and B18."""

from __future__ import annotations

from typing import Any

from kraft.raft import ballots, follower, leader, raft, startup, timers, transitions
from kraft.raft.core import Core
from kraft.raft.identity import VoterSet
from kraft.raft.inputs import ResponseReceived
from kraft.raft.log_view import LogView
from kraft.raft.ready import Truncate
from kraft.raft.state import NEVER, Follower, Leader
from kraft.wire.rpc.quorum_messages import MetadataFetchResponse, VoteRequest
from tests.bugbank import raft_schedules as play
from tests.bugbank.mutation import bug
from tests.bugbank.originals import Planting

PART = "Raft core"


@bug(
    "B01",
    "commit by count: no record of the leader's own epoch is asked for",
    part=PART,
    expected=("R9", "R6", "R7"),
    directed=play.flap,
    swarm=play.chaos,
)
def commit_by_count(plant: Planting) -> None:
    original = leader.advance_high_watermark

    def twin(core: Core, role: Leader) -> None:
        kept, role.epoch_start_offset = role.epoch_start_offset, -1
        original(core, role)
        role.epoch_start_offset = kept

    plant.replace(leader, "advance_high_watermark", twin)


@bug(
    "B04",
    "a restarted leader goes on leading its epoch",
    part=PART,
    expected=("R12", "R5"),
    directed=play.power_loss_of_the_leader,
    swarm=play.chaos,
)
def resume_as_leader(plant: Planting) -> None:
    def twin(core: Core) -> None:
        core.role = Leader(core.log.end_offset, (), core.now_ms + core.settings.check_quorum_ms, core.now_ms)

    plant.replace(startup, "_resume_resigned", twin)


@bug(
    "B05",
    "a candidate's log is compared by its end alone",
    part=PART,
    expected=("R13", "R6"),
    directed=play.a_tail_of_a_minority,
    swarm=play.chaos,
)
def vote_by_offset(plant: Planting) -> None:
    def twin(self: LogView, last_epoch: int, end_offset: int) -> bool:
        return end_offset >= self.end_offset

    plant.replace(LogView, "is_up_to_date", twin)


@bug(
    "B06",
    "a high watermark is taken from an answer that reports divergence",
    part=PART,
    # R8: the high watermark is above the log end as soon as the log is truncated, before another record is committed
    # there.
    expected=("R7", "D10", "R8"),
    directed=play.a_deposed_leader_rejoins,
    swarm=play.chaos,
)
def high_watermark_before_truncation(plant: Planting) -> None:
    original = follower.handle_fetch_response

    def twin(core: Core, node_id: int, generation: int, response: MetadataFetchResponse, batches: Any) -> None:
        mark = min(response.high_watermark, core.log.end_offset)
        is_ours = isinstance(core.role, Follower) and response.epoch == core.epoch
        if is_ours and response.diverging_epoch >= 0 and mark > (core.high_watermark or 0):
            core.raise_high_watermark(mark)
        original(core, node_id, generation, response, batches)

    plant.replace(follower, "handle_fetch_response", twin)
    plant.replace(follower, "_truncate", _truncate_anywhere)


def _truncate_anywhere(core: Core, epoch: int, end_offset: int) -> None:
    """Disable the node's own check against truncation below its high watermark."""
    local_epoch, local_end = core.log.end_offset_for(epoch)
    target = max(min(local_end, end_offset) if local_epoch == epoch else local_end, core.log.start_offset)
    if target < core.log.end_offset:
        core.log.truncate(target)
        core.out.log.append(Truncate(target))


@bug(
    "B07",
    "a late answer's divergence cuts a log that has moved on",
    part=PART,
    # R8: a log that was truncated below its high watermark has a log end below the high watermark.
    expected=("R11", "R10", "D9", "R8"),
    directed=play.a_late_divergence,
    swarm=play.held_answers,
)
def stale_divergence(plant: Planting) -> None:
    original = raft._on_response

    def twin(core: Core, event: ResponseReceived) -> None:
        response = event.response
        is_late = event.request_id not in core.outstanding
        if is_late and isinstance(response, MetadataFetchResponse) and response.diverging_epoch >= 0:
            target = max(response.diverging_end_offset, core.log.start_offset)
            if isinstance(core.role, Follower) and target < core.log.end_offset:
                core.log.truncate(target)
                core.out.log.append(Truncate(target))
            return
        original(core, event)

    plant.replace(raft, "_on_response", twin)
    plant.put(raft._HANDLERS, ResponseReceived, twin)


@bug(
    "B08",
    "a leader that is no voter any more counts itself",
    part=PART,
    expected=("R9",),
    directed=play.a_leader_is_removed,
    swarm=play.voter_changes,
)
def count_a_removed_leader(plant: Planting) -> None:
    original = leader._end_offset_of_voter

    def twin(core: Core, role: Leader, node_id: int) -> int:
        return max(original(core, role, node_id), core.log.synced_end_offset if not core.is_voter else -1)

    plant.replace(leader, "_end_offset_of_voter", twin)


@bug(
    "B09",
    "voters change before a record of the leader's epoch is committed",
    part=PART,
    expected=("R16", "R1", "R7"),
    directed=play.a_change_before_the_epoch_is_committed,
    swarm=play.voter_changes,
)
def change_too_early(plant: Planting) -> None:
    original = leader._check_voters_change

    def twin(core: Core, voters: VoterSet) -> str | None:
        is_early = isinstance(core.role, Leader) and core.role.high_watermark is None
        return None if is_early else original(core, voters)

    plant.replace(leader, "_check_voters_change", twin)


@bug(
    "B10",
    "a second change of voters while the first is not committed",
    part=PART,
    expected=("R16",),
    directed=play.two_changes_in_flight,
    swarm=play.voter_changes,
)
def two_changes(plant: Planting) -> None:
    original = leader._check_voters_change

    def twin(core: Core, voters: VoterSet) -> str | None:
        refusal = original(core, voters)
        is_second = refusal is not None and refusal.startswith("the voters record at offset ")
        return None if is_second and voters.differs_by(core.voters) <= 1 else refusal

    plant.replace(leader, "_check_voters_change", twin)


@bug(
    "B11",
    "a fetch acknowledges what is written and not synced",
    part=PART,
    expected=("R19", "R9", "R10"),
    directed=play.slow_syncs,
    swarm=play.chaos,
)
def acknowledge_unsynced(plant: Planting) -> None:
    original = follower.send_fetch_if_due

    def twin(core: Core) -> None:
        kept, core.log.synced_end_offset = core.log.synced_end_offset, core.log.end_offset
        original(core)
        core.log.synced_end_offset = kept

    plant.replace(follower, "send_fetch_if_due", twin)


@bug(
    "B11b",
    "a leader counts its own unsynced tail",
    part=PART,
    expected=("R19", "R9", "R10"),
    directed=play.slow_syncs,
    swarm=play.chaos,
)
def count_own_unsynced(plant: Planting) -> None:
    original = leader.advance_high_watermark

    def twin(core: Core, role: Leader) -> None:
        kept, core.log.synced_end_offset = core.log.synced_end_offset, core.log.end_offset
        original(core, role)
        core.log.synced_end_offset = kept

    plant.replace(leader, "advance_high_watermark", twin)


@bug(
    "B14",
    "an isolated leader never resigns",
    part=PART,
    expected=("R18",),
    directed=play.a_leader_is_isolated,
    swarm=play.long_partitions,
)
def no_check_quorum(plant: Planting) -> None:
    original = timers.tick_leader

    def twin(core: Core, role: Leader) -> None:
        role.check_quorum_deadline_ms = NEVER
        original(core, role)

    plant.replace(leader, "tick_leader", twin, timers)


@bug(
    "B15",
    "a pre-vote raises the epoch of who answers",
    part=PART,
    expected=("K4", "L2"),
    directed=play.a_leader_is_isolated,
    swarm=play.chaos,
)
def disruptive_pre_vote(plant: Planting) -> None:
    original = ballots.handle_vote

    def twin(core: Core, token: int, request: VoteRequest) -> None:
        if request.pre_vote:
            transitions.to_unattached(core, max(core.epoch, request.epoch) + 1)
        original(core, token, request)

    plant.replace(ballots, "handle_vote", twin)
    plant.put(raft._REQUESTS, VoteRequest, twin)


@bug(
    "B18",
    "a fetch below the log start counts as divergence",
    part=PART,
    # R8: a log that is truncated below its high watermark ends below it.
    expected=("R11", "R10", "R8"),
    directed=play.a_paused_follower,
    swarm=play.chaos,
)
def purged_is_divergent(plant: Planting) -> None:
    original = leader._fetch_obstacle

    def twin(core: Core, request: Any) -> Any:
        return (0, 0) if 0 < request.fetch_offset < core.log.start_offset else original(core, request)

    plant.replace(leader, "_fetch_obstacle", twin)
    plant.replace(follower, "_truncate", _truncate_anywhere)


@bug(
    "B02b",
    "a vote is forgotten within its epoch",
    part=PART,
    expected=("R2", "R19", "R1"),
    directed=play.two_candidates,
    swarm=play.chaos,
)
def vote_forgotten(plant: Planting) -> None:
    def twin(core: Core, candidate: Any) -> bool:
        return core.leader_id is None

    original = transitions.vote_for

    def anew(core: Core, candidate: Any) -> None:
        core.voted = None
        original(core, candidate)

    plant.replace(ballots, "grants_vote", twin)
    plant.replace(transitions, "vote_for", anew, ballots)
