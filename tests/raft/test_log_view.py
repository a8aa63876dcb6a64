"""The core's view of the log, compared with a simple reference model that keeps every record."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.raft.identity import ReplicaKey, Voter, VoterSet
from kraft.raft.log_view import BatchSummary, LogView, SnapshotId
from kraft.raft.voter_history import VoterHistory
from kraft.seam import Address, InvariantError
from tests.stages.single_core import voter_set

BASE = voter_set(1, 2, 3)


class NaiveLog:
    """The epoch of every record by offset, and every Voters record."""

    def __init__(self) -> None:
        self.start = 0
        self.base_epoch = 0
        self.epochs: list[int] = []
        self.voters: list[tuple[int, VoterSet]] = []
        self.base = BASE

    @property
    def end(self) -> int:
        return self.start + len(self.epochs)

    @property
    def last_epoch(self) -> int:
        return self.epochs[-1] if self.epochs else self.base_epoch

    def epoch_before(self, offset: int) -> int:
        return self.epochs[offset - 1 - self.start] if offset > self.start else self.base_epoch

    def append(self, count: int, epoch: int, voters: VoterSet | None) -> None:
        if voters is not None:
            self.voters.append((self.end, voters))
        self.epochs.extend([epoch] * count)

    def truncate(self, end: int) -> None:
        del self.epochs[max(0, end - self.start) :]
        self.voters = [(offset, voters) for offset, voters in self.voters if offset < end]

    def trim(self, start: int) -> None:
        self.base_epoch = self.epoch_before(start)
        for offset, voters in self.voters:
            if offset < start:
                self.base = voters
        self.voters = [(offset, voters) for offset, voters in self.voters if offset >= start]
        del self.epochs[: start - self.start]
        self.start = start

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        known = [self.base_epoch, *self.epochs]
        found = max((item for item in known if item <= epoch), default=-1)
        if found < 0:
            return (-1, -1)
        return (found, self.start + max(index for index, item in enumerate(known) if item == found))

    def voters_at(self, end: int) -> VoterSet:
        found = self.base
        for offset, voters in self.voters:
            if offset < end:
                found = voters
        return found


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "voters", "truncate", "trim", "install"]),
        st.integers(1, 5),
        st.integers(0, 2),
    ),
    max_size=40,
)


@given(STEPS)
def test_log_view_agrees_with_a_reference_model_that_keeps_every_record(steps: list[tuple[str, int, int]]) -> None:
    view, naive = LogView(BASE), NaiveLog()
    for number, (kind, size, epochs) in enumerate(steps):
        if kind in ("append", "voters"):
            epoch = max(1, naive.last_epoch + epochs)
            voters = voter_set(1, 2, 10 + number) if kind == "voters" else None
            view.append(BatchSummary(naive.end, naive.end + size, epoch, voters))
            naive.append(size, epoch, voters)
        elif kind == "truncate":
            end = max(naive.start, naive.end - size)
            generation = view.generation
            view.truncate(end)
            naive.truncate(end)
            assert view.generation > generation
        elif kind == "trim":
            start = min(naive.end, naive.start + size)
            view.add_snapshot(SnapshotId(start, naive.epoch_before(start)))
            view.trim(start)
            naive.trim(start)
        else:
            end, epoch = naive.end + size, naive.last_epoch + epochs
            view.install(SnapshotId(end, epoch), BASE)
            naive = NaiveLog()
            naive.start, naive.base_epoch = end, epoch
        assert (view.start_offset, view.end_offset, view.last_epoch) == (naive.start, naive.end, naive.last_epoch)
        assert view.voters.latest == naive.voters_at(naive.end)
        for offset in range(naive.start, naive.end + 1):
            assert view.epoch_before(offset) == naive.epoch_before(offset)
            assert view.voters.at(offset) == naive.voters_at(offset)
        for epoch in range(naive.last_epoch + 3):
            assert view.end_offset_for(epoch) == naive.end_offset_for(epoch)
        again = LogView.recovered(
            naive.base,
            start_offset=view.start_offset,
            end_offset=view.end_offset,
            epochs=view.epochs,
            snapshots=[SnapshotId(naive.start, naive.base_epoch)] if naive.start else [],
            voters_records=naive.voters,
        )
        for epoch in range(naive.last_epoch + 3):
            assert again.end_offset_for(epoch) == naive.end_offset_for(epoch)
        assert again.voters.latest == view.voters.latest


def test_sync_that_started_before_a_truncation_is_ignored() -> None:
    view = LogView(BASE)
    view.append(BatchSummary(0, 10, 1))
    generation = view.generation
    view.truncate(4)
    view.append(BatchSummary(4, 12, 2))
    view.mark_synced(10, generation)
    assert view.synced_end_offset == 0
    view.mark_synced(12, view.generation)
    assert view.synced_end_offset == 12
    view.truncate(6)
    assert view.synced_end_offset == 6


def test_log_view_that_starts_above_0_requires_a_snapshot_at_its_start() -> None:
    with pytest.raises(InvariantError, match="starts at 7"):
        LogView.recovered(BASE, start_offset=7, end_offset=9, epochs=[(1, 7)], snapshots=[SnapshotId(8, 1)])


def test_append_must_continue_the_log_in_offset_and_epoch() -> None:
    view = LogView(BASE)
    view.append(BatchSummary(0, 3, 2))
    for batch in (BatchSummary(4, 5, 2), BatchSummary(3, 4, 1)):
        with pytest.raises(InvariantError):
            view.append(batch)
    with pytest.raises(InvariantError):
        view.trim(2)


def test_voter_set_follows_the_log_end_and_reverts_on_truncation() -> None:
    history = VoterHistory(BASE)
    second, third = voter_set(1, 2, 3, 4), voter_set(1, 2, 4)
    history.append(10, second)
    history.append(20, third)
    assert [history.at(end) for end in (0, 10, 11, 20, 21)] == [BASE, BASE, second, second, third]
    assert (history.latest, history.latest_offset) == (third, 20)
    history.truncate(20)
    assert (history.latest, history.latest_offset) == (second, 10)
    history.trim(15)
    assert (history.latest, history.latest_offset) == (second, -1)
    history.truncate(15)
    assert history.latest == second
    with pytest.raises(InvariantError):
        history.append(-1, third)
    history.reset(BASE)
    assert history.latest == BASE


def test_voter_set_rejects_duplicate_nodes_and_compares_directory_ids() -> None:

    one, other = uuid.UUID(int=1), uuid.UUID(int=2)
    address = Address("n", 1)
    with pytest.raises(ValueError, match="occurs twice"):
        VoterSet((Voter(ReplicaKey(1), address), Voter(ReplicaKey(1, one), address)))
    voters = VoterSet((Voter(ReplicaKey(2, one), address), Voter(ReplicaKey(1), address)))
    assert voters.ids == (1, 2)
    assert voters.includes(ReplicaKey(1, other))
    assert voters.includes(ReplicaKey(2, one))
    assert not voters.includes(ReplicaKey(2, other))
    assert not voters.includes(ReplicaKey(3, one))
    assert voters.differs_by(VoterSet((Voter(ReplicaKey(1), address),))) == 1
    assert voters.differs_by(VoterSet((Voter(ReplicaKey(2, other), address), Voter(ReplicaKey(1), address)))) == 2


def test_snapshot_written_while_a_newer_one_was_installed_is_ignored() -> None:
    """Its file was removed with the log that the newer snapshot replaced."""
    view = LogView(BASE)
    view.install(SnapshotId(9, 2), BASE)
    view.add_snapshot(SnapshotId(7, 2))
    assert view.snapshots == [SnapshotId(9, 2)]
