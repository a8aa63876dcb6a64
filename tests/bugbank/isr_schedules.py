"""Schedules for the replicas of one partition: a leader's view of its followers, and logs that diverge and converge."""

from __future__ import annotations

import random

from kraft.broker.replica.follower import (
    FollowerState,
    Resolution,
    SentFetch,
    StepKind,
    decide_answer,
    decide_out_of_range,
)
from kraft.broker.replica.isr import IsrAnswer, IsrProposal
from kraft.broker.replica.leader import LeaderState
from kraft.image.partitions import PartitionState
from kraft.storage.epochs import UNDEFINED, EpochCache
from kraft.wire.error_codes import ErrorCode
from tests.broker.replica.test_leader_against_a_twin import Disagreement, run_steps
from tests.bugbank.mutation import Violation, require

LAG_MS = 1_000
REPLICAS = (1, 2, 3)
ELIGIBLE = {1: 101, 2: 102, 3: 103}
ROUNDS_MAX = 20


def leaders(seed: int) -> None:
    """Drive a leader, and a simple model that has the content of every log, through random steps."""
    try:
        run_steps(seed)
    except Disagreement as error:
        text = str(error)
        if text.startswith("fetch: joins"):
            raise Violation("D18", text) from error
        raise Violation("D4", text) from error


# a leader


class Leading:
    """A leader with two followers, and the actual end offsets of the followers' logs."""

    def __init__(self, *isr: int, min_isr: int = 1, high_watermark: int = 10, end: int = 10) -> None:
        self.state = LeaderState(
            1,
            PartitionState(REPLICAS, isr, 1, 5, 7),
            log_end_offset=end,
            own_acked_offset=end,
            high_watermark=high_watermark,
            min_isr=min_isr,
            lag_ms_max=LAG_MS,
            now_ms=0,
        )
        self.now_ms = 0
        self.ends = {1: end, 2: 0, 3: 0}

    def append(self, end: int) -> None:
        self.ends[1] = end
        self.state.appended(end, end, self.now_ms, ELIGIBLE)

    def fetch(self, replica: int, offset: int) -> IsrProposal | None:
        """Let the follower have all records below `offset`, and fetch from there."""
        self.ends[replica] = offset
        effects = self.state.fetched(replica, offset, 0, self.ends[1], self.now_ms, 100 + replica, ELIGIBLE)
        if effects.proposal is not None:
            start, mark = self.state.epoch_start_offset, self.state.high_watermark
            honest = all(self.ends[one] >= max(start, mark) for one in effects.proposal.ids)
            require("D18", honest, f"{effects.proposal.ids} proposed; ends {self.ends}, epoch start {start}")
        return effects.proposal

    def require_held_by(self, *members: int) -> None:
        mark = self.state.high_watermark
        require("D4", all(self.ends[one] >= mark for one in members), f"{mark} is above one of {self.ends}")


def an_expansion_is_pending(seed: int) -> None:
    """Propose a third replica for the ISR and hold the response. A write continues with the two replicas that were in
    sync."""
    leading = Leading(1, 2)
    leading.fetch(2, 10)
    require("L5", leading.fetch(3, 10) is not None, "a replica that is caught up is not proposed")
    leading.append(12)
    leading.now_ms += 2 * LAG_MS
    leading.fetch(2, 12)
    leading.require_held_by(1, 2, 3)


def a_shrink_is_committed(seed: int) -> None:
    """Commit the removal of a frozen follower from the ISR while one write is in flight and nothing else is sent."""
    leading = Leading(*REPLICAS, min_isr=2)
    for one in (2, 3):
        leading.fetch(one, 10)
    leading.append(12)
    leading.now_ms += 2 * LAG_MS
    leading.fetch(2, 12)
    leading.require_held_by(*REPLICAS)
    proposal = leading.state.check_lag(leading.now_ms)
    assert proposal is not None
    answer = IsrAnswer(ErrorCode.NONE, 5, 8, (1, 2))
    leading.state.answered(proposal, answer, leading.now_ms, ELIGIBLE)
    require(
        "L6", leading.state.high_watermark == 12, f"12 is held by all in sync, {leading.state.high_watermark} shown"
    )


def a_new_leader_behind_its_epoch(seed: int) -> None:
    """Elect a leader whose high watermark is below the start of its epoch. A slow follower has reached that high
    watermark."""
    leading = Leading(1, 2, high_watermark=5)
    leading.fetch(3, 6)


def followers_are_cut_off_after_an_append(seed: int) -> None:
    """Cut followers off while a produce waits, so that the ISR falls below the minimum."""
    leading = Leading(*REPLICAS, min_isr=2)
    for one in (2, 3):
        leading.fetch(one, 10)
    leading.append(12)
    leading.now_ms += 2 * LAG_MS
    leading.state.metadata_changed(PartitionState(REPLICAS, (1,), 1, 5, 8), leading.now_ms, ELIGIBLE)
    leading.state.synced(12, leading.now_ms, ELIGIBLE)
    is_told = leading.state.high_watermark >= 12 and leading.state.acknowledgement_error() is ErrorCode.NONE
    require("D11", not is_told, "success, with one replica in sync of two that are asked for")


# diverging logs


class ReplicaLog:
    """A replica's log: records as (epoch, number), and the epochs as production code stores them."""

    def __init__(self) -> None:
        self.start = 0
        self.records: list[tuple[int, int]] = []
        self.epochs = EpochCache()
        self.high_watermark = 0

    @property
    def log_start_offset(self) -> int:
        return self.start

    @property
    def log_end_offset(self) -> int:
        return self.start + len(self.records)

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def lead(self, epoch: int) -> None:
        self.epochs.assign(epoch, self.log_end_offset)

    def append(self, record: tuple[int, int]) -> None:
        if record[0] > self.epochs.latest_epoch:
            self.epochs.assign(record[0], self.log_end_offset)
        self.records.append(record)

    def truncate(self, offset: int) -> None:
        if offset < self.start:
            self.restart(offset)
            return
        del self.records[offset - self.start :]
        self.epochs.truncate_from_end(offset)

    def restart(self, offset: int) -> None:
        """Restart the replica with an empty log."""
        self.records.clear()
        self.start = offset
        self.epochs.clear()

    def trim(self, offset: int) -> None:
        del self.records[: offset - self.start]
        self.start = offset
        self.epochs.truncate_from_start(offset)

    def is_out_of_range(self, offset: int, epoch: int) -> bool:
        """Whether a leader rejects a fetch from this position as out of range. `epoch` is -1 if the follower has
        none."""
        if epoch < 0:
            return not self.start <= offset <= self.log_end_offset
        return offset < self.start or self.end_offset_for(epoch) == UNDEFINED

    def resolve(self, leader: ReplicaLog) -> None:
        """Truncate the log as the offsets returned by the leader require."""
        found = decide_out_of_range(self.log_end_offset, leader.log_end_offset, leader.start)
        assert found is not None
        resolution, offset = found
        if resolution is Resolution.RESTART:
            self.restart(offset)
        elif resolution is Resolution.TRUNCATE:
            self.truncate(offset)

    def diverging(self, offset: int, epoch: int) -> tuple[int, int] | None:
        """Return the divergence that a leader reports to a follower whose log ends with `epoch` at `offset`."""
        if epoch < 0:
            return None
        floor, end = self.end_offset_for(epoch)
        if floor < epoch or end < offset:
            return floor, end
        return None


def replicate(leader: ReplicaLog, follower: ReplicaLog, epoch: int, count: int) -> None:
    """Fetch until both histories agree, and then up to `count` records."""
    for _ in range(ROUNDS_MAX):
        offset, latest = follower.log_end_offset, follower.epochs.latest_epoch
        if leader.is_out_of_range(offset, latest):
            follower.resolve(leader)
            continue
        diverging = leader.diverging(offset, latest)
        if diverging is None:
            break
        state = FollowerState(1, epoch, offset, latest)
        step = decide_answer(state, SentFetch(offset, epoch), follower, ErrorCode.NONE, diverging)
        require("D9", step.kind is StepKind.TRUNCATE, f"{diverging} makes {step}")
        require("L5", step.offset < offset or latest > 0, f"cut to {step.offset} of {offset}")
        follower.truncate(step.offset)
    else:
        raise Violation("L5", f"no agreement after {ROUNDS_MAX} rounds")
    offset = follower.log_end_offset
    require("D2", offset <= leader.log_end_offset, f"a follower ends at {offset}, its leader {leader.log_end_offset}")
    for record in leader.records[offset - leader.start :][:count]:
        follower.append(record)
    _compare(leader, follower)


def _compare(leader: ReplicaLog, follower: ReplicaLog) -> None:
    first = max(leader.start, follower.start)
    mine = leader.records[first - leader.start :]
    theirs = follower.records[first - follower.start :]
    require("D2", mine[: len(theirs)] == theirs, f"leader {mine}, follower {theirs}")


def _common_end(replicas: list[ReplicaLog]) -> int:
    """Return the offset up to which all replicas agree. Retention deletes only committed records; here, these are the
    records that all replicas share."""
    offset = max(replica.start for replica in replicas)
    while len({tuple(replica.records[offset - replica.start :][:1]) for replica in replicas}) == 1:
        if offset >= replicas[0].log_end_offset:
            break
        offset += 1
    return offset


def histories(seed: int) -> None:
    """Change the leader of three replicas (min.insync.replicas 1) in quick succession. Each leader writes last records
    that few others get."""
    draw = random.Random(seed)
    replicas = [ReplicaLog() for _ in REPLICAS]
    number = 0
    for epoch in range(1, 40):
        leader = draw.choice(replicas)
        leader.lead(epoch)
        for _ in range(draw.choice((0, 0, 1, 2, 3))):
            number += 1
            leader.append((epoch, number))
        others = [one for one in replicas if one is not leader]
        for follower in draw.sample(others, draw.choice((0, 0, 1, 1, 2))):
            replicate(leader, follower, epoch, draw.choice((0, 1, 100)))
        if not draw.randrange(4) and (common := _common_end(replicas)) > leader.start:
            leader.trim(draw.randint(leader.start + 1, common))


def three_leaders_in_succession(seed: int) -> None:
    """Elect three leaders in succession (KIP-279): the leader does not have the follower's epoch and names an older
    one, which the follower must look up."""
    follower, leader = ReplicaLog(), ReplicaLog()
    for record in ((1, 1), (1, 2)):
        follower.append(record)
        leader.append(record)
    for number in (3, 4, 5):
        follower.append((2, number))
    leader.append((1, 6))
    leader.append((1, 7))
    leader.append((1, 8))
    leader.lead(4)
    leader.append((4, 9))
    replicate(leader, follower, 4, 100)


def an_epoch_behind_the_leaders_begin(seed: int) -> None:
    """Elect a leader whose epochs begin after those of a follower. The follower still has last records of the older
    epoch."""
    follower, leader = ReplicaLog(), ReplicaLog()
    for number in range(4):
        follower.append((1, number))
        leader.append((1, number))
    for number in range(4, 12):
        follower.append((2, 100 + number))
    for number in range(4, 14):
        leader.append((3, number))
    leader.trim(6)
    replicate(leader, follower, 3, 100)
