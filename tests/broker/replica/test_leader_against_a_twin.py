"""The leader's state compared with a simple model that recomputes everything from the whole history, under random
steps. The comparison must catch each bug planted in the state.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from kraft.broker.replica.isr import AnswerVerdict, IsrAnswer, IsrProposal
from kraft.broker.replica.leader import FollowerProgress, LeaderState
from kraft.image.partitions import PartitionState
from kraft.wire.error_codes import ErrorCode

LAG_MS = 1_000
REPLICAS = (1, 2, 3, 4)


class Disagreement(AssertionError):
    """Raised when the leader's state and the model differ."""


class Twin:
    """The model: the expected state, computed from the rules and the true content of every log."""

    def __init__(self, end: int, isr: tuple[int, ...], min_isr: int, high_watermark: int) -> None:
        self.end = end
        self.epoch_start = end
        self.isr = set(isr)
        self.maximal = set(isr)
        self.min_isr = min_isr
        self.high_watermark = high_watermark
        self.fetched: dict[int, int] = {}
        self.caught_up_ms = dict.fromkeys(isr, 0)
        self.last: dict[int, tuple[int, int]] = {}
        self.epochs: dict[int, int] = {}
        self.removed_from_isr: set[int] = set()

    def fetch(self, replica: int, offset: int, now_ms: int, epoch: int) -> None:
        leader_end_then, then_ms = self.last.get(replica, (None, 0))
        if offset >= self.end:
            self.caught_up_ms[replica] = now_ms
        elif leader_end_then is not None and offset >= leader_end_then:
            self.caught_up_ms[replica] = max(self.caught_up_ms.get(replica, -(10**9)), then_ms)
        self.fetched[replica] = offset
        self.last[replica] = (self.end, now_ms)
        self.epochs[replica] = epoch

    def in_time(self, replica: int, now_ms: int) -> bool:
        return self.fetched.get(replica) == self.end or now_ms - self.caught_up_ms.get(replica, -(10**9)) <= LAG_MS

    def expected_high_watermark(self, now_ms: int, eligible: dict[int, int]) -> int:
        if len(self.isr) < min(self.min_isr, len(REPLICAS)):
            return self.high_watermark
        bounding = set(self.maximal)
        for replica in REPLICAS[1:]:
            joins = replica in eligible and self.epochs.get(replica, -1) in (eligible[replica], -1)
            if joins and replica not in self.removed_from_isr and self.in_time(replica, now_ms):
                bounding.add(replica)
        least = min(self.end if replica == 1 else self.fetched.get(replica, -1) for replica in bounding)
        return max(self.high_watermark, least)

    def may_join(self, replica: int, eligible: dict[int, int]) -> bool:
        offset = self.fetched.get(replica, -1)
        return (
            replica not in self.maximal
            and replica not in self.removed_from_isr
            and offset >= self.high_watermark
            and offset >= self.epoch_start
            and eligible.get(replica) == self.epochs.get(replica)
        )


def check(condition: object, what: str) -> None:
    if not condition:
        raise Disagreement(what)


class Comparison:
    """A LeaderState and its model, to which the same random steps of a seed are applied."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        isr = tuple(sorted({1, *random.sample(REPLICAS, random.randrange(1, 5))}))
        min_isr = random.randrange(1, 4)
        self.state = LeaderState(
            1,
            PartitionState(REPLICAS, isr, 1, 5, 7),
            log_end_offset=10,
            own_acked_offset=10,
            high_watermark=random.randrange(0, 11),
            min_isr=min_isr,
            lag_ms_max=LAG_MS,
            now_ms=0,
        )
        self.twin = Twin(10, isr, min_isr, self.state.high_watermark)
        self.eligible = {replica: 100 + replica for replica in REPLICAS}
        self.ends = dict.fromkeys(REPLICAS[1:], 0)
        self.pending: IsrProposal | None = None
        self.now_ms = self.moved = 0
        self.partition_epoch = 7

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now_ms += self.random.choice((0, 1, 50, 700))
            step = self.random.randrange(8)
            if step <= 1:
                self._append()
            elif step <= 4:
                self._fetch()
            elif step == 5:
                self._look_at_lag()
            elif step == 6 and self.pending is not None:
                self._answer(self.pending)
            elif step == 7:
                self._change_brokers()

    # steps

    def _append(self) -> None:
        twin = self.twin
        twin.end += self.random.randrange(1, 4)
        self.state.appended(twin.end, twin.end, self.now_ms, self.eligible)
        if twin.maximal == {1}:
            self._advance()
        self._compare("append")

    def _fetch(self) -> None:
        random, twin, ends = self.random, self.twin, self.ends
        replica = random.choice(REPLICAS[1:])
        ends[replica] = min(twin.end, ends[replica] + random.choice((0, 1, 2, 20)))
        epoch = self.eligible.get(replica, 100 + replica) - (random.random() < 0.1)
        twin.fetch(replica, ends[replica], self.now_ms, epoch)
        joins = self.pending is None and twin.may_join(replica, self.eligible)
        effects = self.state.fetched(replica, ends[replica], 0, twin.end, self.now_ms, epoch, self.eligible)
        check((effects.proposal is not None) == joins, f"fetch: joins {joins}")
        self._take(effects.proposal)
        before = twin.high_watermark
        if ends[replica] > before:
            self._advance()
        check(effects.high_watermark_moved == (twin.high_watermark != before), "fetch: moved")
        self._compare("fetch")

    def _look_at_lag(self) -> None:
        twin = self.twin
        lagging = {one for one in twin.isr - {1} if not twin.in_time(one, self.now_ms)}
        shrinks = self.pending is None and bool(lagging)
        proposal = self.state.check_lag(self.now_ms)
        check((proposal is not None) == shrinks, f"lag: shrinks {shrinks}")
        if proposal is not None:
            check(proposal.ids == twin.isr - lagging, "lag: members")
        self._take(proposal)
        self._compare("lag")

    def _answer(self, asked: IsrProposal) -> None:
        outcome = self.random.randrange(3)
        if outcome == 0:
            self.partition_epoch += 1
            members = tuple(sorted(asked.ids))
            check(self._verdict(asked, ErrorCode.NONE, members) is AnswerVerdict.COMMITTED, "committed")
            self._settle(set(members))
        elif outcome == 1:
            check(self._verdict(asked, ErrorCode.INELIGIBLE_REPLICA) is AnswerVerdict.REVERTED, "reverted")
            self._settle(self.twin.isr)
        else:
            self._verdict(asked, ErrorCode.INVALID_UPDATE_VERSION)
        self._compare("answer")

    def _verdict(self, asked: IsrProposal, error: ErrorCode, members: tuple[int, ...] = ()) -> AnswerVerdict:
        answer = IsrAnswer(error, 5, self.partition_epoch, members) if members else IsrAnswer(error)
        return self.state.answered(asked, answer, self.now_ms, self.eligible)[0]

    def _change_brokers(self) -> None:
        random = self.random
        if random.random() < 0.1:
            self._publish(tuple(self.twin.isr))
            self._advance()
            self._compare("metadata already known from an answer")
        elif random.random() < 0.3:
            self._fence_or_unfence()
        else:
            self._take_back_who_was_taken_out()

    def _fence_or_unfence(self) -> None:
        random, twin, eligible = self.random, self.twin, self.eligible
        replica = random.choice(REPLICAS[1:])
        if replica in eligible:
            del eligible[replica]
        else:
            eligible[replica] = 100 + replica
        self.partition_epoch += 1
        members = tuple(sorted({1, *random.sample(sorted(twin.isr), random.randrange(len(twin.isr) + 1))}))
        self._publish(members)
        twin.removed_from_isr |= (twin.isr - set(members)) & (twin.isr if self.pending is None else self.pending.ids)
        self._settle(set(members))
        self._compare("metadata")

    def _publish(self, members: tuple[int, ...]) -> None:
        state = PartitionState(REPLICAS, members, 1, 5, self.partition_epoch)
        self.state.metadata_changed(state, self.now_ms, self.eligible)

    def _take_back_who_was_taken_out(self) -> None:
        twin, eligible = self.twin, self.eligible
        waiting = {one for one in REPLICAS[1:] if one in twin.removed_from_isr and twin.in_time(one, self.now_ms)}
        by_timer = self.random.random() < 0.5
        if by_timer:
            twin.removed_from_isr -= waiting
            proposal = self.state.readmit_removed(self.now_ms, eligible)
            joins = {one for one in REPLICAS[1:] if twin.may_join(one, eligible)} if waiting else set()
        else:
            twin.removed_from_isr.clear()
            joins = {one for one in REPLICAS[1:] if twin.may_join(one, eligible)}
            proposal = self.state.brokers_changed(self.now_ms, eligible).proposal
        joins = set() if self.pending is not None else joins
        check((set() if proposal is None else proposal.ids - twin.isr) == joins, f"taken out: {joins} join")
        self._take(proposal)
        if not by_timer:
            self._advance()
        self._compare("taken out")

    # the model's transitions

    def _advance(self) -> None:
        mark = self.twin.expected_high_watermark(self.now_ms, self.eligible)
        self.moved += mark != self.twin.high_watermark
        self.twin.high_watermark = mark

    def _take(self, proposal: IsrProposal | None) -> None:
        if proposal is not None:
            check(self.pending is None, "two changes are pending")
            self.pending = proposal
            self.twin.maximal = self.twin.isr | proposal.ids

    def _settle(self, isr: set[int]) -> None:
        """Set the model's in-sync set, after which no change is pending."""
        self.twin.isr, self.twin.maximal = set(isr), set(isr)
        self.pending = None
        self._advance()

    def _compare(self, what: str) -> None:
        state, twin = self.state, self.twin
        check(state.high_watermark == twin.high_watermark, f"{what}: high watermark {state.high_watermark}")
        check(state.isr.committed == twin.isr, f"{what}: in-sync set")
        check(state.isr.maximal == twin.maximal, f"{what}: maximal set")
        check(state.has_enough_replicas == (len(twin.isr) >= min(twin.min_isr, 4)), f"{what}: enough replicas")


def run_steps(seed: int, steps: int = 300) -> int:
    """Apply random steps to a LeaderState and its model. Return how often the high watermark moved."""
    comparison = Comparison(seed)
    comparison.run(steps)
    return comparison.moved


def test_the_leader_state_equals_a_simple_model_under_random_steps() -> None:
    assert sum(run_steps(seed) for seed in range(150)) > 1_000, "the high watermark moved in these runs"


Patch = Callable[[pytest.MonkeyPatch], Any]


def _committed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft.broker.replica.isr.InSyncSet.propose", lambda self, p: setattr(self, "pending", p))


def _below_min_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    advance = LeaderState._advance

    def unguarded(self: LeaderState, now_ms: int, eligible: dict[int, int]) -> bool:
        kept, self.effective_min_isr = self.effective_min_isr, 0
        moved = advance(self, now_ms, eligible)
        self.effective_min_isr = kept
        return moved

    monkeypatch.setattr(LeaderState, "_advance", unguarded)


def _join_before_epoch_start(monkeypatch: pytest.MonkeyPatch) -> None:
    propose = LeaderState._propose_expand

    def early(self: LeaderState, replica: int, progress: FollowerProgress, eligible: dict[int, int]) -> Any:
        kept, self.epoch_start_offset = self.epoch_start_offset, 0
        proposal = propose(self, replica, progress, eligible)
        self.epoch_start_offset = kept
        return proposal

    monkeypatch.setattr(LeaderState, "_propose_expand", early)


def _old_incarnation_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "kraft.broker.replica.leader._is_eligible", lambda broker_id, epoch, eligible: broker_id in eligible
    )


def _joiners_do_not_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaderState, "_is_about_to_join", lambda *_: False)


def _caught_up_by_the_newest_end_only(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = FollowerProgress.fetched

    def strict(self: FollowerProgress, offset: int, start: int, end: int, now_ms: int, epoch: int) -> None:
        self.leader_end_then = 2**62
        fetched(self, offset, start, end, now_ms, epoch)

    monkeypatch.setattr(FollowerProgress, "fetched", strict)


@pytest.mark.parametrize(
    "plant",
    [
        _committed_only,
        _below_min_isr,
        _join_before_epoch_start,
        _old_incarnation_joins,
        _joiners_do_not_bound,
        _caught_up_by_the_newest_end_only,
    ],
)
def test_checks_catch_each_bug_planted_in_the_leader_state(plant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(Disagreement):
        for seed in range(150):
            run_steps(seed)
