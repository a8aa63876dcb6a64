"""Bugs planted in the cores or their drivers, each of which must make a check of the simulated replicas fail. The same
seeds pass without the bugs (test_simulation).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from kraft.broker.replica import follower
from kraft.broker.replica.follower import StepKind
from kraft.broker.replica.isr import InSyncSet
from kraft.broker.replica.leader import LeaderState
from kraft.broker.replica.role import RoleChange
from kraft.control.brokers import fencing
from kraft.control.brokers import registration as brokers
from kraft.control.partitions import isr, partition_change, plans, recovery
from kraft.control.partitions.partition_change import Election
from kraft.image.events import PartitionChange
from kraft.image.partitions import NO_LEADER
from kraft.sim.cores.checks import Violation
from kraft.sim.cores.replicas import broker as broker_module
from kraft.sim.cores.replicas import controller as controller_module
from kraft.sim.cores.replicas.chaos import ReplicaChaos
from kraft.sim.cores.replicas.checks import ReplicaChecks
from kraft.sim.cores.replicas.controller import CoreController
from kraft.sim.cores.replicas.following import FollowingReplica
from kraft.sim.cores.replicas.leading import LeadingReplica
from kraft.sim.cores.replicas.links import ReplicaOdds
from kraft.sim.cores.replicas.log import ReplicaLog
from kraft.sim.cores.replicas.world import ReplicaSettings, ReplicaWorld
from kraft.sim.cores.runs import REPLICAS, CoresSettings, run_seed
from kraft.storage.epochs import EpochCache

SEEDS = 60
SHORT = CoresSettings(duration_ms=5_000, what=REPLICAS)

Plant = Callable[[pytest.MonkeyPatch], Any]


def first_catch() -> str:
    """Return the name of the check that fails first on some seed; "" if none does."""
    for seed in range(1, SEEDS):
        run = run_seed(SHORT, seed)
        if run.failed:
            return run.failed
    return ""


# the high watermark


def high_watermark_is_the_leaders_end(patch: pytest.MonkeyPatch) -> None:
    def twin(self: LeaderState, now_ms: int, eligible: Mapping[int, int]) -> bool:
        moves = self.own_acked_offset > self.high_watermark
        self.high_watermark = max(self.high_watermark, self.own_acked_offset)
        return moves

    patch.setattr(LeaderState, "_advance", twin)


def high_watermark_counts_the_most_advanced_replicas(patch: pytest.MonkeyPatch) -> None:
    """For the high watermark, the leader counts the most advanced replicas instead of the members of the in-sync set.
    It counts as many as the in-sync set has members."""

    def twin(self: LeaderState, now_ms: int, eligible: Mapping[int, int]) -> bool:
        if len(self.isr.committed) < self.effective_min_isr:
            return False
        ends = sorted([self.own_acked_offset, *(one.end_offset for one in self.followers.values())], reverse=True)
        least = ends[len(self.isr.maximal) - 1]
        moves = least > self.high_watermark
        self.high_watermark = max(self.high_watermark, least)
        return moves

    patch.setattr(LeaderState, "_advance", twin)


def high_watermark_does_not_wait_for_a_joining_replica(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(InSyncSet, "propose", lambda self, proposal: setattr(self, "pending", proposal))
    patch.setattr(LeaderState, "_is_about_to_join", lambda *_: False)


def a_pending_shrink_stops_bounding_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    def twin(self: InSyncSet, proposal: Any) -> None:
        self.pending = proposal
        self.maximal = proposal.ids

    patch.setattr(InSyncSet, "propose", twin)


def min_insync_replicas_do_not_hold_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    original = LeaderState._advance

    def twin(self: LeaderState, now_ms: int, eligible: Mapping[int, int]) -> bool:
        kept, self.effective_min_isr = self.effective_min_isr, 0
        moved = original(self, now_ms, eligible)
        self.effective_min_isr = kept
        return moved

    patch.setattr(LeaderState, "_advance", twin)


def a_new_in_sync_set_lowers_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    original = LeaderState.metadata_changed

    def twin(self: LeaderState, *arguments: Any) -> Any:
        self.high_watermark = min([self.high_watermark, *(max(0, p.end_offset) for p in self.followers.values())])
        return original(self, *arguments)

    patch.setattr(LeaderState, "metadata_changed", twin)


def the_leader_counts_unsynced_records(patch: pytest.MonkeyPatch) -> None:
    """The leader counts unsynced records, although appends must be synced."""
    original = LeadingReplica.produce

    def twin(self: LeadingReplica, count: int, *, all_in_sync: bool) -> bool:
        taken = original(self, count, all_in_sync=all_in_sync)
        if taken:
            self.core.synced(self.broker.log.log_end_offset, self.broker.world.now, self.broker.eligible)
            self._take_high_watermark()
        return taken

    patch.setattr(LeadingReplica, "produce", twin)


def a_produce_is_acknowledged_at_the_leaders_end(patch: pytest.MonkeyPatch) -> None:
    original = LeadingReplica.produce

    def twin(self: LeadingReplica, count: int, *, all_in_sync: bool) -> bool:
        taken = original(self, count, all_in_sync=all_in_sync)
        if taken and all_in_sync:
            self.broker.world.acknowledged(self, self.broker.log.batches[-1])
        return taken

    patch.setattr(LeadingReplica, "produce", twin)


# the in-sync set


def a_replica_joins_before_it_has_reached_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    def twin(self: LeaderState, replica: int, progress: Any, eligible: Mapping[int, int]) -> bool:
        return progress.end_offset >= self.epoch_start_offset and replica in eligible

    patch.setattr(LeaderState, "_may_join", twin)


def a_replica_joins_before_it_has_reached_the_epochs_start(patch: pytest.MonkeyPatch) -> None:
    def twin(self: LeaderState, replica: int, progress: Any, eligible: Mapping[int, int]) -> bool:
        return progress.end_offset >= self.high_watermark and replica in eligible

    patch.setattr(LeaderState, "_may_join", twin)


def any_proposal_is_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(isr, "refuse_proposal", lambda *_: None)


# diverging logs


def a_follower_truncates_to_its_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """The follower truncates to its high watermark, as before KIP-101."""
    patch.setattr(follower, "truncation_offset", lambda log, epoch, end: log.high_watermark)


def a_leader_sees_no_divergence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EpochCache, "end_offset_for", lambda self, epoch, end: (epoch, end))


def the_high_watermark_of_a_diverging_answer_is_applied(patch: pytest.MonkeyPatch) -> None:
    """The follower applies the high watermark of a response that reports a divergence (B06)."""
    original = FollowingReplica._cut

    def twin(self: FollowingReplica, offset: int, *, fully: bool) -> None:
        log = self.broker.log
        before, log.high_watermark = log.high_watermark, log.log_end_offset
        self.broker.world.witness.on_high_watermark(self.broker, before)
        original(self, offset, fully=fully)

    patch.setattr(FollowingReplica, "_cut", twin)


def a_high_watermark_is_not_clamped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(follower, "follower_high_watermark", lambda mark, start, end: mark)


def epochs_survive_their_truncation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EpochCache, "truncate_from_end", lambda self, end_offset: False)


def any_answer_is_appended(patch: pytest.MonkeyPatch) -> None:
    """The follower appends the records of any response, even of a late or repeated response (B07)."""
    original = follower.decide_answer

    def decide(state: Any, sent: Any, log: Any, error: int, diverging: Any) -> Any:
        step = original(state, sent, log, error, diverging)
        return follower.APPEND if step.kind is StepKind.IGNORE and not error and diverging is None else step

    def append(self: FollowingReplica, fetched: Any) -> None:
        log = self.broker.log
        for batch in fetched.batches:
            log.append(batch)
            self.broker.world.witness.on_append(self.broker, batch)
        self._take_marks(fetched)
        self.core.fetch_offset, self.core.last_fetched_epoch = log.log_end_offset, log.epochs.latest_epoch

    patch.setattr(follower, "decide_answer", decide)
    patch.setattr(FollowingReplica, "_append", append)


def a_restart_truncates_the_log_to_the_checkpointed_high_watermark(patch: pytest.MonkeyPatch) -> None:
    original = ReplicaLog.reopen

    def twin(self: ReplicaLog) -> None:
        self.truncate_to(max(self.log_start_offset, min(self.checkpoint, self.log_end_offset)))
        original(self)

    patch.setattr(ReplicaLog, "reopen", twin)


def a_new_leader_truncates_its_log_to_its_high_watermark(patch: pytest.MonkeyPatch) -> None:
    original = LeadingReplica.__init__

    def twin(self: LeadingReplica, broker: Any, state: Any, left: Any) -> None:
        broker.log.truncate_to(broker.log.high_watermark)
        original(self, broker, state, left)

    patch.setattr(LeadingReplica, "__init__", twin)


def deletion_goes_beyond_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    def twin(self: LeadingReplica) -> None:
        offset = self.broker.log.log_end_offset
        self.broker.world.witness.on_trim(self.broker, offset)

    patch.setattr(LeadingReplica, "trim", twin)


# the controller


def any_replica_is_elected(patch: pytest.MonkeyPatch) -> None:
    def twin(draft: Any, election: Election, eligibility: Any, furthest: int) -> Any:
        online = [one for one in draft.replicas if eligibility.may_lead(one, draft.directory_of(one))]
        return partition_change._Elected(online[-1] if online else -1, unclean=False)

    patch.setattr(partition_change, "_elect", twin)


def the_last_known_leader_is_elected_whatever_it_has_lost(patch: pytest.MonkeyPatch) -> None:
    original = plans.choose_furthest

    def twin(*arguments: Any) -> int:
        state = arguments[4]
        return NO_LEADER if original(*arguments) == NO_LEADER else state.last_known_elr[0]

    patch.setattr(plans, "choose_furthest", twin)


def the_longest_log_is_elected_whatever_its_epoch(patch: pytest.MonkeyPatch) -> None:
    original = recovery._reported_log_end

    def twin(*arguments: Any) -> Any:
        found = original(*arguments)
        return None if found is None else found._replace(last_epoch=0)

    patch.setattr(recovery, "_reported_log_end", twin)


def an_election_does_not_wait_for_replicas_that_have_not_reported(patch: pytest.MonkeyPatch) -> None:
    original = recovery._reported_log_end

    def twin(*arguments: Any) -> Any:
        found = original(*arguments)
        return None if found is None else found._replace(since_ms=-10_000)

    patch.setattr(recovery, "_reported_log_end", twin)


def every_return_counts_as_clean(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(brokers, "is_clean", lambda old, command: True)


def a_fenced_broker_keeps_its_partitions(patch: pytest.MonkeyPatch) -> None:
    original = fencing.leave_partitions

    def twin(image: Any, context: Any, leaving: Any, *arguments: Any, **options: Any) -> Any:
        return original(image, context, frozenset(), *arguments, **options)

    patch.setattr(fencing, "leave_partitions", twin)


def a_new_leader_gets_no_new_epoch(patch: pytest.MonkeyPatch) -> None:
    replaying = importlib.import_module("kraft.image.replay")  # the package has a function with the name of this module
    original = replaying.changed_partition

    def twin(old: Any, event: PartitionChange) -> Any:
        return original(old, event)._replace(leader_epoch=old.leader_epoch)

    patch.setattr(replaying, "changed_partition", twin)


def broker_epochs_do_not_rise(patch: pytest.MonkeyPatch) -> None:
    original = brokers._record

    def twin(image: Any, context: Any, command: Any, before: Any) -> Any:
        decision = original(image, context, command, before)
        *rest, record = decision.events
        record = type(record)(record.broker_id, record.incarnation_id, 7, record.endpoints, log_dirs=record.log_dirs)
        return type(decision)(events=(*rest, record), reply=decision.reply, depends_on=decision.depends_on)

    patch.setattr(brokers, "_record", twin)


def an_answer_does_not_wait_for_the_commit(patch: pytest.MonkeyPatch) -> None:
    def twin(self: CoreController) -> None:
        while self._parked:
            self.world.witness.on_reply(self._parked.popleft().image_offset, self.committed.offset)

    patch.setattr(CoreController, "_release", twin)


def a_decision_reports_no_read_dependency(patch: pytest.MonkeyPatch) -> None:
    """The controller reports no read dependency, so its response waits only for the commit of the events of its own
    command."""
    original = controller_module.decide
    patch.setattr(controller_module, "decide", lambda *arguments: replace(original(*arguments), depends_on=0))


def every_in_sync_replica_leads(patch: pytest.MonkeyPatch) -> None:
    original = broker_module.decide_role

    def twin(local_id: int, held: Any, state: Any) -> RoleChange:
        change = original(local_id, held, state)
        return RoleChange.LEAD if change is RoleChange.FOLLOW and local_id in state.isr else change

    patch.setattr(broker_module, "decide_role", twin)


BUGS: list[tuple[Plant, tuple[str, ...]]] = [
    (high_watermark_is_the_leaders_end, ("D4", "K7")),
    (high_watermark_counts_the_most_advanced_replicas, ("D4",)),
    (high_watermark_does_not_wait_for_a_joining_replica, ("D4",)),
    (a_pending_shrink_stops_bounding_the_high_watermark, ("D4",)),
    (min_insync_replicas_do_not_hold_the_high_watermark, ("K7",)),
    (a_new_in_sync_set_lowers_the_high_watermark, ("D3",)),
    (the_leader_counts_unsynced_records, ("D4",)),
    (a_produce_is_acknowledged_at_the_leaders_end, ("D11",)),
    (a_replica_joins_before_it_has_reached_the_high_watermark, ("D18",)),
    (a_replica_joins_before_it_has_reached_the_epochs_start, ("D18",)),
    (any_proposal_is_accepted, ("M8",)),
    (a_follower_truncates_to_its_high_watermark, ("D9",)),
    (a_leader_sees_no_divergence, ("D2", "D4", "D6", "D9")),
    (the_high_watermark_of_a_diverging_answer_is_applied, ("D2",)),
    (a_high_watermark_is_not_clamped, ("D5",)),
    (epochs_survive_their_truncation, ("D7",)),
    (any_answer_is_appended, ("D6",)),
    (a_restart_truncates_the_log_to_the_checkpointed_high_watermark, ("D1", "D18")),
    (a_new_leader_truncates_its_log_to_its_high_watermark, ("D1",)),
    (deletion_goes_beyond_the_high_watermark, ("D16",)),
    (any_replica_is_elected, ("M5",)),
    (the_last_known_leader_is_elected_whatever_it_has_lost, ("D1",)),
    (the_longest_log_is_elected_whatever_its_epoch, ("D1",)),
    (an_election_does_not_wait_for_replicas_that_have_not_reported, ("D1",)),
    (every_return_counts_as_clean, ("M16",)),
    (a_fenced_broker_keeps_its_partitions, ("M6", "M16")),
    (a_new_leader_gets_no_new_epoch, ("M3",)),
    (broker_epochs_do_not_rise, ("M7",)),
    (an_answer_does_not_wait_for_the_commit, ("M9",)),
    (a_decision_reports_no_read_dependency, ("M9",)),
    (every_in_sync_replica_leads, ("D8",)),
]


@pytest.mark.parametrize(("plant", "expected"), BUGS, ids=[plant.__name__ for plant, _ in BUGS])
def test_checks_catch_each_planted_replica_bug(
    monkeypatch: pytest.MonkeyPatch, plant: Plant, expected: tuple[str, ...]
) -> None:
    plant(monkeypatch)
    assert first_catch() in expected


def slow_disks(seed: int) -> str:
    """Run replicas whose appends must be synced, with disks much slower than the network. Return the name of the check
    that fails; "" if none fails."""
    odds = ReplicaOdds(latency=(1, 3), sync=(20, 90), waits_for_disk=True)
    world = ReplicaWorld(seed, 4, odds=odds, settings=ReplicaSettings(min_isr=2), witness=ReplicaChecks())
    try:
        ReplicaChaos(world).run(6_000)
    except Violation as violation:
        return violation.name
    return ""


def test_checks_catch_a_follower_that_acknowledges_unsynced_records_of_an_earlier_role(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def twin(self: FollowingReplica) -> None:
        self.waits_for_sync = False
        self.fetch()

    seeds = range(25)
    assert {slow_disks(seed) for seed in seeds} == {""}
    monkeypatch.setattr(FollowingReplica, "begin", twin)
    assert {slow_disks(seed) for seed in seeds} == {"", "D4"}
