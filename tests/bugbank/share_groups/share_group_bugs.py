"""Mutations of share groups: B70 to B77, B79 to B81."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kraft.broker.api.share_fetch import share_reading
from kraft.broker.api.share_fetch.led_share_partition import LedSharePartition
from kraft.broker.api.share_fetch.share_sessions import FINAL_EPOCH, ShareMember, ShareSessionCache
from kraft.broker.group import share_groups
from kraft.broker.share_coordinator import coordinator, share_state
from kraft.broker.share_coordinator.coordinator import ShareCoordinator
from kraft.broker.share_coordinator.records import NO_EPOCH
from kraft.broker.share_coordinator.requests import (
    DeleteStateRequest,
    InitializeStateRequest,
    StateReply,
    WriteStateRequest,
)
from kraft.broker.share_coordinator.step import ShareStep
from kraft.broker.share_group.state import ShareDraft
from kraft.broker.share_partition import log_ranges
from kraft.broker.share_partition.acknowledging import Acknowledgement
from kraft.broker.share_partition.share_partition import SharePartition
from kraft.broker.share_partition.states import (
    AcknowledgementBatch,
    AcknowledgeType,
    RecordState,
    StateBatch,
    StateWrite,
)
from kraft.wire.error_codes import ErrorCode
from tests.bugbank.mutation import bug
from tests.bugbank.originals import Planting
from tests.bugbank.share_groups import share_group_schedules as play

PART = "Share groups"
FAR_MS = 10**12


@bug(
    "B70",
    "a share coordinator answers a write before it is committed",
    part=PART,
    expected=("S6",),
    directed=play.an_acknowledgement_before_its_commit,
    swarm=play.trials,
)
def write_is_answered_at_once(plant: Planting) -> None:
    original = ShareCoordinator.handle

    def twin(self: ShareCoordinator, request: Any, ticket: Any, now: Any) -> ShareStep:
        step = original(self, request, ticket, now)
        if not isinstance(request, WriteStateRequest):
            return step
        return ShareStep(step.entries, tuple((after.ticket, after.reply) for after in step.after))

    plant.replace(ShareCoordinator, "handle", twin)


@bug(
    "B70b",
    "a leader answers an acknowledgement before the share coordinator has",
    part=PART,
    expected=("S6", "S11"),
    directed=play.two_members_read,
    swarm=play.share_groups,
)
def acknowledgement_is_answered_at_once(plant: Planting) -> None:
    original = LedSharePartition.acknowledge

    def twin(
        self: LedSharePartition, member: str, batches: Sequence[AcknowledgementBatch], then: Callable[[ErrorCode], None]
    ) -> None:
        errors: list[ErrorCode] = []
        original(self, member, batches, errors.append)
        then(errors[0] if errors else ErrorCode.NONE)

    plant.replace(LedSharePartition, "acknowledge", twin)


@bug(
    "B71",
    "a share coordinator lets a leader write that was replaced",
    part=PART,
    expected=("S7",),
    directed=play.a_leader_that_was_replaced_writes,
    swarm=play.trials,
)
def leaders_are_not_fenced(plant: Planting) -> None:
    original = ShareCoordinator._refusal

    def twin(self: ShareCoordinator, request: Any, known: Any) -> ErrorCode:
        error = original(self, request, known)
        return ErrorCode.NONE if error is ErrorCode.FENCED_LEADER_EPOCH else error

    plant.replace(ShareCoordinator, "_refusal", twin)


@bug(
    "B72",
    "a new leader counts the deliveries of a record from zero",
    part=PART,
    expected=("S2",),
    directed=play.a_leader_dies_after_a_delivery,
    swarm=play.trials,
)
def counts_begin_again(plant: Planting) -> None:
    original = SharePartition.__init__

    def twin(self: SharePartition, *, batches: Sequence[StateBatch] = (), **rest: Any) -> None:
        original(self, batches=[batch._replace(delivery_count=0) for batch in batches], **rest)

    plant.replace(SharePartition, "__init__", twin)


@bug(
    "B72b",
    "a snapshot of a share coordinator forgets how often available records were delivered",
    part=PART,
    expected=("S4", "S8"),
    directed=play.released_records_in_a_snapshot,
    swarm=play.trials,
)
def snapshot_forgets_counts(plant: Planting) -> None:
    original = coordinator._next_snapshot

    def twin(snapshot: Any, now: Any) -> Any:
        kept = tuple(batch for batch in snapshot.batches if batch.state)
        return original(snapshot._replace(batches=kept), now)

    plant.replace(coordinator, "_next_snapshot", twin)


@bug(
    "B73",
    "the expiry of one lock frees the records of other acquisitions",
    part=PART,
    expected=("S1", "S5"),
    directed=play.one_of_two_locks_expires,
    swarm=play.trials,
)
def expiry_frees_all(plant: Planting) -> None:
    original = SharePartition.expire_locks

    def twin(self: SharePartition, now_ms: int) -> StateWrite | None:
        due_ms = self.next_expiry_ms
        return None if due_ms is None or due_ms > now_ms else original(self, FAR_MS)

    plant.replace(SharePartition, "expire_locks", twin)


@bug(
    "B74",
    "a start offset is set behind records that are not finished",
    part=PART,
    expected=("S5",),
    directed=play.the_last_record_is_accepted_first,
    swarm=play.trials,
)
def start_passes_unfinished_records(plant: Planting) -> None:
    original = SharePartition._write

    def twin(self: SharePartition, number: int, batches: tuple[StateBatch, ...]) -> StateWrite:
        write = original(self, number, batches)
        complete = [batch.last_offset + 1 for batch in write.batches if batch.state]
        return write._replace(start_offset=max((write.start_offset, *complete)), batches=())

    plant.replace(SharePartition, "_write", twin)


@bug(
    "B75",
    "a share session accepts requests of any epoch",
    part=PART,
    expected=("S12",),
    directed=play.a_request_is_sent_again,
    swarm=play.sessions,
)
def any_session_epoch(plant: Planting) -> None:
    original = ShareSessionCache.resume

    def twin(self: ShareSessionCache, member: ShareMember, epoch: int) -> Any:
        session = self._sessions.get(member)
        return original(self, member, epoch if session is None or epoch == FINAL_EPOCH else session.epoch)

    plant.replace(ShareSessionCache, "resume", twin)


@bug(
    "B76",
    "a record that is released counts as acknowledged",
    part=PART,
    expected=("S5",),
    directed=play.records_are_released,
    swarm=play.trials,
)
def release_acknowledges(plant: Planting) -> None:
    original = SharePartition._begin_change

    def twin(self: SharePartition, item: Acknowledgement, number: int) -> None:
        is_release = item.type is AcknowledgeType.RELEASE
        original(self, item._replace(type=AcknowledgeType.ACCEPT) if is_release else item, number)

    plant.replace(SharePartition, "_begin_change", twin)


@bug(
    "B76b",
    "a session's end lowers the delivery counts of the records that it gives back",
    part=PART,
    expected=("S5", "S2"),
    directed=play.a_session_ends,
    swarm=play.trials,
)
def given_back_does_not_count(plant: Planting) -> None:
    """Records that crash every member are delivered permanently."""
    original = SharePartition._given_back

    def twin(self: SharePartition, delivery: Any, number: int) -> Any:
        given_back = original(self, delivery, number)
        return given_back._replace(next_state=RecordState.AVAILABLE, next_count=delivery.delivery_count - 1)

    plant.replace(SharePartition, "_given_back", twin)


@bug(
    "B77",
    "a read_committed share group gets records of aborted transactions",
    part=PART,
    expected=("S9",),
    directed=play.an_aborted_transaction,
    swarm=play.trials,
)
def aborted_records_are_delivered(plant: Planting) -> None:
    original = log_ranges.log_ranges

    def twin(batches: Any, read_offset: int, aborted: Any = None) -> Any:
        return original(batches, read_offset, None)

    plant.replace(log_ranges, "log_ranges", twin, share_reading)


@bug(
    "B77b",
    "the last write about a record wins, also one of an earlier delivery",
    part=PART,
    expected=("S4", "S8", "S3"),
    directed=play.a_late_release,
    no_swarm="the driver of a leader sends one write at a time, so a late one is a request that the network repeats",
)
def last_write_wins(plant: Planting) -> None:
    def twin(runs: Any, first: int, end: int, info: Any) -> None:
        runs.change(first, end, lambda _: info)

    plant.replace(share_state, "_raise_to", twin)


@bug(
    "B79",
    "a new start offset does not raise the state epoch, so that a leader from before it writes on",
    part=PART,
    expected=("S14", "S4"),
    directed=play.a_start_offset_is_set_back,
    swarm=play.trials,
)
def state_epoch_is_kept(plant: Planting) -> None:
    original = ShareCoordinator.handle

    def twin(self: ShareCoordinator, request: Any, ticket: Any, now: Any) -> ShareStep:
        step = original(self, request, ticket, now)
        known = self.states.get(request.key)
        if not isinstance(request, InitializeStateRequest) or known is None or not step.entries:
            return step
        epoch = known.snapshot.state_epoch
        return step._replace(
            entries=tuple(one._replace(value=one.value._replace(state_epoch=epoch)) for one in step.entries)
        )

    plant.replace(ShareCoordinator, "handle", twin)


@bug(
    "B79b",
    "a share coordinator lets a leader write that has read the state before the start offset was set",
    part=PART,
    expected=("S7",),
    directed=play.a_leader_writes_after_a_start_offset_was_set,
    swarm=play.trials,
)
def older_states_are_not_fenced(plant: Planting) -> None:
    original = ShareCoordinator._refusal

    def twin(self: ShareCoordinator, request: Any, known: Any) -> ErrorCode:
        error = original(self, request, known)
        return ErrorCode.NONE if error is ErrorCode.FENCED_STATE_EPOCH else error

    plant.replace(ShareCoordinator, "_refusal", twin)


@bug(
    "B79c",
    "records that were acknowledged before a start offset was set stay acknowledged",
    part=PART,
    expected=("S14",),
    directed=play.a_start_offset_is_set_back,
    swarm=play.trials,
)
def deliveries_are_kept(plant: Planting) -> None:
    original = ShareCoordinator._initialized

    def twin(self: ShareCoordinator, request: Any, known: Any, now: Any) -> Any:
        entries = original(self, request, known, now)
        kept = () if known is None else known.batches
        return tuple(entry._replace(value=entry.value._replace(batches=kept)) for entry in entries)

    plant.replace(ShareCoordinator, "_initialized", twin)


@bug(
    "B79d",
    "a leader with the state of a deleted group writes to the state of a new group with the same name",
    part=PART,
    expected=("S7",),
    directed=play.a_leader_writes_after_its_group_was_deleted,
    swarm=play.trials,
)
def leaders_may_write_unread_states(plant: Planting) -> None:
    original = ShareCoordinator._refusal

    def twin(self: ShareCoordinator, request: Any, known: Any) -> ErrorCode:
        is_unread = known is not None and getattr(request, "leader_epoch", NO_EPOCH) > known.leader_epoch
        return original(self, request._replace(leader_epoch=NO_EPOCH) if is_unread else request, known)

    plant.replace(ShareCoordinator, "_refusal", twin)


@bug(
    "B79e",
    "the offsets of a share group change while the group has members",
    part=PART,
    expected=("S14",),
    directed=play.an_administrator_does_not_wait_for_members,
    no_swarm="the state machines of a trial have no group coordinator",
)
def members_do_not_matter(plant: Planting) -> None:
    original = share_groups._draft_of_empty_group

    def twin(shard: Any, request: Any, ticket: Any, call: Any) -> Any:
        group = shard.versions.newest.shares.get(request.group)
        return original(shard, request, ticket, call) if group is None else ShareDraft(request.group, group)

    plant.replace(share_groups, "_draft_of_empty_group", twin)


@bug(
    "B79f",
    "a leader keeps its state when the share coordinator has another one since a start offset was set",
    part=PART,
    expected=("S10",),
    directed=play.an_administrator_waits_for_a_member_that_is_cut_off,
    no_swarm="a member must be cut off from the group coordinator while its session with the leader stays open",
)
def fenced_leader_keeps_its_state(plant: Planting) -> None:
    original = LedSharePartition._written

    def twin(self: LedSharePartition, reply: StateReply) -> None:
        is_fenced = reply.error is ErrorCode.FENCED_STATE_EPOCH
        original(self, StateReply(ErrorCode.COORDINATOR_NOT_AVAILABLE) if is_fenced else reply)

    plant.replace(LedSharePartition, "_written", twin)


@bug(
    "B80",
    "the number of complete records leaves out those that the write itself completes",
    part=PART,
    expected=("S13",),
    directed=play.a_record_behind_held_ones_is_rejected,
    swarm=play.trials,
)
def count_lacks_the_write(plant: Planting) -> None:
    original = SharePartition._write

    def twin(self: SharePartition, number: int, batches: tuple[StateBatch, ...]) -> StateWrite:
        write = original(self, number, batches)
        own = sum(batch.last_offset + 1 - batch.first_offset for batch in write.batches if batch.state)
        return write._replace(delivery_complete_count=write.delivery_complete_count - own)

    plant.replace(SharePartition, "_write", twin)


@bug(
    "B80b",
    "the number of complete records has those below the start offset",
    part=PART,
    expected=("S13",),
    directed=play.records_before_and_behind_held_ones_are_accepted,
    swarm=play.trials,
)
def count_begins_too_low(plant: Planting) -> None:
    original = SharePartition._write

    def twin(self: SharePartition, number: int, batches: tuple[StateBatch, ...]) -> StateWrite:
        write = original(self, number, batches)
        passed = write.start_offset - self.start_offset
        return write._replace(delivery_complete_count=write.delivery_complete_count + passed)

    plant.replace(SharePartition, "_write", twin)


@bug(
    "B80c",
    "a snapshot of a share coordinator forgets the number of complete records",
    part=PART,
    expected=("S8", "S13"),
    directed=play.rejected_records_in_a_snapshot,
    swarm=play.trials,
)
def snapshot_forgets_the_count(plant: Planting) -> None:
    original = coordinator._next_snapshot

    def twin(snapshot: Any, now: Any) -> Any:
        return original(snapshot._replace(delivery_complete_count=0), now)

    plant.replace(coordinator, "_next_snapshot", twin)


@bug(
    "B81",
    "a deletion removes states that have begun since",
    part=PART,
    expected=("S10",),
    directed=play.a_deletion_arrives_when_members_have_joined,
    no_swarm="the state machines of a trial have no group coordinator",
)
def deletions_have_no_epoch(plant: Planting) -> None:
    original = ShareCoordinator.handle

    def twin(self: ShareCoordinator, request: Any, ticket: Any, now: Any) -> ShareStep:
        is_deletion = isinstance(request, DeleteStateRequest)
        return original(self, request._replace(state_epoch=NO_EPOCH) if is_deletion else request, ticket, now)

    plant.replace(ShareCoordinator, "handle", twin)
