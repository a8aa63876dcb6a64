"""Mutations of ISR replication: B42 to B47."""

from __future__ import annotations

from typing import Any

from kraft.broker.replica import follower
from kraft.broker.replica.isr import AnswerVerdict, InSyncSet
from kraft.broker.replica.leader import LeaderState, _is_eligible
from kraft.storage.epochs import UNDEFINED, EpochCache
from kraft.wire.error_codes import ErrorCode
from tests.bugbank import isr_schedules as play
from tests.bugbank.mutation import bug
from tests.bugbank.originals import Planting

PART = "ISR replication"


@bug(
    "B42",
    "the high watermark does not wait for a replica whose joining is pending",
    part=PART,
    expected=("D4", "D1"),
    directed=play.an_expansion_is_pending,
    swarm=play.leaders,
)
def committed_isr_only(plant: Planting) -> None:
    plant.replace(InSyncSet, "propose", lambda self, proposal: setattr(self, "pending", proposal))
    plant.replace(LeaderState, "_is_about_to_join", lambda *arguments: False)


@bug(
    "B43",
    "the high watermark is not looked at again after a shrink",
    part=PART,
    # D4: the high watermark of the swarm's model is right at once, without waiting.
    expected=("L7", "N3", "L6", "D4"),
    directed=play.a_shrink_is_committed,
    swarm=play.leaders,
)
def no_check_after_a_shrink(plant: Planting) -> None:
    original = LeaderState.answered

    def twin(self: LeaderState, *arguments: Any) -> tuple[AnswerVerdict, bool]:
        kept = self.high_watermark
        verdict, _ = original(self, *arguments)
        self.high_watermark = kept
        return verdict, False

    plant.replace(LeaderState, "answered", twin)


@bug(
    "B44",
    "a replica joins the ISR before it has reached the start of the leader's epoch",
    part=PART,
    expected=("D18", "L12", "D1"),
    directed=play.a_new_leader_behind_its_epoch,
    swarm=play.leaders,
)
def early_expansion(plant: Planting) -> None:
    def twin(self: LeaderState, replica_id: int, progress: Any, eligible: Any) -> bool:
        is_there = replica_id not in self.removed_by_controller and replica_id not in self.offline
        return (
            is_there
            and progress.end_offset >= self.high_watermark
            and _is_eligible(replica_id, progress.broker_epoch, eligible)
        )

    plant.replace(LeaderState, "_may_join", twin)


@bug(
    "B45",
    "a follower cuts once, and does not mind that the leader named an older epoch",
    part=PART,
    expected=("D2",),
    directed=play.three_leaders_in_succession,
    swarm=play.histories,
)
def one_truncation_round(plant: Planting) -> None:
    def twin(log: follower.LocalLog, leader_epoch: int, leader_end: int) -> int:
        return min(leader_end, log.log_end_offset)

    plant.replace(follower, "truncation_offset", twin)
    diverging = play.ReplicaLog.diverging

    def once(self: play.ReplicaLog, offset: int, epoch: int) -> tuple[int, int] | None:
        found = diverging(self, offset, epoch)
        return None if found is not None and found[1] >= offset else found

    plant.replace(play.ReplicaLog, "diverging", once)


@bug(
    "B46",
    "an epoch that the leader does not know is answered with its log end",
    part=PART,
    expected=("D9", "D2"),
    directed=play.an_epoch_behind_the_leaders_begin,
    swarm=play.histories,
)
def undefined_is_the_end(plant: Planting) -> None:
    original = EpochCache.end_offset_for

    def twin(self: EpochCache, epoch: int, log_end_offset: int) -> tuple[int, int]:
        found = original(self, epoch, log_end_offset)
        entries = self.entries
        is_unknown = found == UNDEFINED or (entries and epoch < entries[0][0])
        return (epoch, log_end_offset) if is_unknown else found

    plant.replace(EpochCache, "end_offset_for", twin)


@bug(
    "B47",
    "min.insync.replicas is asked for at the append alone",
    part=PART,
    # D4: the swarm compares the high watermark with that of a model, which stays when the ISR is below
    # min.insync.replicas.
    expected=("D11", "D4"),
    directed=play.followers_are_cut_off_after_an_append,
    swarm=play.leaders,
)
def min_isr_at_append_only(plant: Planting) -> None:
    original = LeaderState._advance

    def twin(self: LeaderState, *arguments: Any) -> bool:
        kept, self.effective_min_isr = self.effective_min_isr, 1
        moved = original(self, *arguments)
        self.effective_min_isr = kept
        return moved

    plant.replace(LeaderState, "_advance", twin)
    plant.replace(LeaderState, "acknowledgement_error", lambda self: ErrorCode.NONE)
