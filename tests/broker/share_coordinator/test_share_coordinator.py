"""The share coordinator: initialize, read, write, delete and summary of the state of share partitions (KIP-932)."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kraft.broker.shard.now import Now
from kraft.broker.share_coordinator.records import NO_EPOCH, ShareKey, ShareSnapshot, ShareUpdate
from kraft.broker.share_coordinator.requests import DeleteStateRequest, ReadStateRequest, StateReply, WriteStateRequest
from kraft.broker.share_coordinator.share_state import combine
from kraft.broker.share_partition.states import StateBatch
from kraft.wire.error_codes import ErrorCode
from tests.broker.share_coordinator.coordinated import KEY, TOPIC, Coordinated

ACKNOWLEDGED, ARCHIVED, AVAILABLE = 2, 4, 0


def acked(first: int, last: int) -> StateBatch:
    return StateBatch(first, last, ACKNOWLEDGED, 1)


def test_a_share_partition_must_be_initialized_before_it_is_read_or_written() -> None:
    shares = Coordinated()
    assert shares.read() == StateReply(ErrorCode.INVALID_REQUEST)
    assert shares.write(0) is ErrorCode.INVALID_REQUEST
    assert shares.log == []


def test_a_read_returns_what_was_initialized() -> None:
    shares = Coordinated()
    assert shares.initialize(7, state_epoch=2) is ErrorCode.NONE
    state = shares.read().state
    assert state is not None
    assert (state.state_epoch, state.start_offset, state.batches) == (2, 7, ())


def test_a_read_returns_the_combined_writes() -> None:
    shares = Coordinated()
    shares.initialize(0)
    shares.write(0, acked(3, 5), StateBatch(8, 9, AVAILABLE, 1))
    shares.write(2, acked(6, 7), StateBatch(8, 8, ARCHIVED, 2), complete=6)
    state = shares.read().state
    assert state is not None
    assert state.start_offset == 2
    assert state.batches == (acked(3, 7), StateBatch(8, 8, ARCHIVED, 2), StateBatch(9, 9, AVAILABLE, 1))
    assert state.delivery_complete_count == 6


def test_a_write_that_arrives_again_after_a_later_one_does_not_move_the_start_offset_back() -> None:
    shares = Coordinated()
    shares.initialize(0)
    shares.write(0, acked(1, 4))
    shares.write(5)
    shares.write(0, acked(1, 4))
    for one in (shares, shares.failover()):
        state = one.read().state
        assert state is not None
        assert (state.start_offset, state.batches) == (5, ())


def test_a_write_that_arrives_again_does_not_set_the_count_of_a_later_start_offset() -> None:
    shares = Coordinated()
    shares.initialize(0)
    shares.write(0, acked(1, 4), complete=4)
    shares.write(5, acked(7, 8), complete=2)
    shares.write(0, acked(1, 4), complete=4)
    for one in (shares, shares.failover()):
        state = one.read().state
        assert state is not None
        assert (state.start_offset, state.delivery_complete_count) == (5, 2)


def test_a_write_of_the_same_start_offset_does_not_lower_the_count() -> None:
    shares = Coordinated()
    shares.initialize(0)
    shares.write(0, acked(1, 4), complete=4)
    shares.write(0, acked(1, 2), complete=2)
    for one in (shares, shares.failover()):
        state = one.read().state
        assert state is not None
        assert (state.start_offset, state.delivery_complete_count) == (0, 4)
    shares.write(1, complete=2)
    state = shares.read().state
    assert state is not None
    assert state.delivery_complete_count == 2


def test_a_leader_of_a_deleted_state_is_fenced_also_if_the_new_state_has_the_same_state_epoch() -> None:
    shares = Coordinated()
    shares.initialize(0, state_epoch=1)
    shares.read(0)
    assert shares.write(7, acked(8, 9), state_epoch=1, leader_epoch=0) is ErrorCode.NONE
    shares.delete()
    shares.initialize(state_epoch=1)
    assert shares.write(9, state_epoch=1, leader_epoch=0) is ErrorCode.FENCED_LEADER_EPOCH
    state = shares.read(0).state
    assert state is not None
    assert (state.start_offset, state.batches) == (-1, ())
    assert shares.write(0, state_epoch=1, leader_epoch=0) is ErrorCode.NONE


def test_a_write_of_an_older_leader_epoch_is_fenced() -> None:
    shares = Coordinated()
    shares.initialize(0)
    shares.read(5)
    assert shares.write(0, leader_epoch=5) is ErrorCode.NONE
    assert shares.write(0, leader_epoch=4) is ErrorCode.FENCED_LEADER_EPOCH
    assert shares.read(4) == StateReply(ErrorCode.FENCED_LEADER_EPOCH)


def test_a_read_by_a_new_leader_fences_the_writes_of_the_previous_leader_also_after_a_failover() -> None:
    shares = Coordinated()
    shares.initialize(0)
    shares.read(5)
    shares.write(0, acked(0, 1), leader_epoch=5)
    shares.read(6)
    assert shares.write(2, leader_epoch=5) is ErrorCode.FENCED_LEADER_EPOCH
    assert shares.failover().write(2, leader_epoch=5) is ErrorCode.FENCED_LEADER_EPOCH


def test_a_read_by_the_known_leader_writes_nothing() -> None:
    shares = Coordinated()
    shares.initialize(0)
    shares.read(6)
    written = len(shares.log)
    shares.read(6)
    assert len(shares.log) == written


def test_a_write_of_an_older_state_epoch_is_fenced() -> None:
    shares = Coordinated()
    shares.initialize(0, state_epoch=1)
    shares.write(5, acked(5, 9), state_epoch=1)
    assert shares.initialize(100, state_epoch=2) is ErrorCode.NONE
    assert shares.write(5, state_epoch=1) is ErrorCode.FENCED_STATE_EPOCH
    assert shares.initialize(50, state_epoch=1) is ErrorCode.FENCED_STATE_EPOCH
    state = shares.read().state
    assert state is not None
    assert (state.state_epoch, state.start_offset, state.batches) == (2, 100, ())


def test_a_repeated_initialization_keeps_what_was_written_meanwhile() -> None:
    shares = Coordinated()
    shares.initialize()
    shares.write(5, acked(5, 9))
    assert shares.initialize() is ErrorCode.NONE
    state = shares.read().state
    assert state is not None
    assert state.batches == (acked(5, 9),)


def test_a_change_of_the_start_offset_that_arrives_again_keeps_what_was_written_meanwhile() -> None:
    shares = Coordinated()
    shares.initialize(0)
    shares.initialize(3, state_epoch=1)
    shares.write(8, acked(9, 9), state_epoch=1)
    assert shares.initialize(3, state_epoch=1) is ErrorCode.NONE
    state = shares.read().state
    assert state is not None
    assert (state.start_offset, state.batches) == (8, (acked(9, 9),))


def test_a_start_offset_is_set_in_a_state_of_the_same_epoch_that_has_none_yet() -> None:
    """A member joins while an administrator sets the offsets of a group whose states have not begun."""
    shares = Coordinated()
    shares.initialize(state_epoch=1)
    shares.read(4)
    assert shares.initialize(3, state_epoch=1) is ErrorCode.NONE
    assert shares.write(900, state_epoch=1, leader_epoch=4) is ErrorCode.FENCED_LEADER_EPOCH
    for one in (shares, shares.failover()):
        state = one.read(4).state
        assert state is not None
        assert (state.state_epoch, state.start_offset, state.delivery_complete_count) == (1, 3, 0)
    assert shares.write(5, state_epoch=1, leader_epoch=4) is ErrorCode.NONE


def test_a_deleted_state_is_gone_and_can_be_deleted_again() -> None:
    shares = Coordinated()
    shares.initialize(0)
    assert shares.delete() is ErrorCode.NONE
    assert shares.read() == StateReply(ErrorCode.INVALID_REQUEST)
    assert shares.delete() is ErrorCode.NONE
    assert shares.failover().machine.states == {}


def test_a_summary_of_an_unknown_share_partition_is_no_error() -> None:
    assert Coordinated().summary() == StateReply(ErrorCode.NONE, None)


def test_a_summary_fences_no_leader() -> None:
    shares = Coordinated()
    shares.initialize(3)
    state = shares.summary().state
    assert state is not None
    assert state.start_offset == 3
    assert len(shares.log) == 1


def test_a_reply_waits_until_everything_it_tells_is_committed() -> None:
    shares = Coordinated()
    shares.initialize(0)
    shares.commits = False
    written = shares.asked(WriteStateRequest(KEY, 0, NO_EPOCH, 4, 0, ()))
    read = shares.asked(ReadStateRequest(KEY, 0))
    assert written == read == []
    shares.commit()
    assert [reply.error for reply in (*written, *read)] == [ErrorCode.NONE, ErrorCode.NONE]


def test_a_write_that_is_not_committed_in_time_is_answered_with_the_error() -> None:
    shares = Coordinated()
    shares.initialize(0)
    shares.commits = False
    written = shares.asked(WriteStateRequest(KEY, 0, NO_EPOCH, 4, 0, ()))
    shares.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert written == [StateReply(ErrorCode.COORDINATOR_NOT_AVAILABLE)]


def test_a_snapshot_follows_a_number_of_updates() -> None:
    shares = Coordinated(updates_per_snapshot=2)
    shares.initialize(0)
    for offset in range(1, 7):
        shares.write(offset)
    kinds = [type(entry.value) for entry in shares.log]
    assert kinds == [ShareSnapshot, ShareUpdate, ShareUpdate, ShareSnapshot, ShareUpdate, ShareUpdate, ShareSnapshot]
    assert [entry.value.snapshot_epoch for entry in shares.log if entry.value] == [0, 0, 0, 1, 1, 1, 2]


def test_records_before_the_earliest_snapshot_are_redundant() -> None:
    shares = Coordinated(updates_per_snapshot=1)
    other = ShareKey("g", TOPIC, 1)
    shares.initialize(0)
    shares.initialize(0, key=other)
    for offset in range(1, 5):
        shares.write(offset)
    assert shares.machine.redundant_before(shares.end_offset) == 1
    shares.write(1, key=other)
    shares.write(2, key=other)
    assert shares.machine.redundant_before(shares.end_offset) == 5


def test_records_are_redundant_only_when_the_snapshots_that_replace_them_are_committed() -> None:
    shares = Coordinated(updates_per_snapshot=0)
    shares.initialize(0)
    high_watermark = shares.end_offset
    shares.write(1)
    assert shares.machine.redundant_before(high_watermark) == 0, "the second snapshot may be lost"
    replaced = shares.end_offset
    shares.write(2)
    assert shares.machine.redundant_before(high_watermark) == 0
    assert shares.machine.redundant_before(replaced) == 1
    assert shares.machine.redundant_before(shares.end_offset) == 2


def test_nothing_is_redundant_while_the_offsets_of_loaded_snapshots_are_unknown() -> None:
    shares = Coordinated(updates_per_snapshot=1)
    shares.initialize(0)
    for offset in range(1, 5):
        shares.write(offset)
    other = shares.failover()
    assert other.machine.redundant_before(other.end_offset) == 0


def test_a_cold_share_partition_gets_a_snapshot_once() -> None:
    shares = Coordinated()
    shares.initialize(0)
    shares.write(3, acked(5, 9))
    shares.do(shares.machine.snapshot_cold(shares.now))
    assert len(shares.log) == 2
    shares.now = Now(0, shares.now.wall_ms + 300_000)
    shares.do(shares.machine.snapshot_cold(shares.now))
    assert shares.log[-1].value == ShareSnapshot(1, 0, NO_EPOCH, 3, 0, 1_300_000, 1_300_000, (acked(5, 9),))
    shares.now = Now(0, shares.now.wall_ms + 300_000)
    shares.do(shares.machine.snapshot_cold(shares.now))
    assert len(shares.log) == 3
    assert shares.machine.redundant_before(shares.end_offset) == 2


def test_a_deletion_of_an_epoch_removes_only_a_state_of_an_older_epoch() -> None:
    shares = Coordinated()
    shares.initialize(3, state_epoch=4)
    for epoch, is_kept in ((3, True), (4, True), (5, False)):
        assert shares.ask(DeleteStateRequest(KEY, epoch)).error is ErrorCode.NONE
        assert (shares.summary().state is not None) is is_kept


def test_the_states_of_deleted_topics_are_deleted() -> None:
    shares = Coordinated()
    kept = ShareKey("g", UUID(int=2), 0)
    shares.initialize(0)
    shares.initialize(0, key=kept)
    shares.do(shares.machine.forget_topics({TOPIC}, shares.now))
    assert set(shares.machine.states) == set(shares.failover().machine.states) == {kept}


BATCHES = st.builds(
    lambda first, more, state, count: StateBatch(first, first + more, state, count),
    st.integers(0, 20),
    st.integers(0, 6),
    st.sampled_from((0, 2, 4)),
    st.integers(0, 3),
)


@given(known=st.lists(BATCHES, max_size=6), changes=st.lists(BATCHES, max_size=6), start=st.integers(0, 25))
def test_combined_batches_have_the_greatest_delivery_of_each_offset(
    known: list[StateBatch], changes: list[StateBatch], start: int
) -> None:
    expected: dict[int, tuple[int, int]] = {}
    for batch in (*known, *changes):
        for offset in range(max(batch.first_offset, start), batch.last_offset + 1):
            expected[offset] = max(expected.get(offset, (-1, -1)), (batch.delivery_count, batch.state))
    combined = combine(known, changes, start)
    assert {
        offset: (batch.delivery_count, batch.state)
        for batch in combined
        for offset in range(batch.first_offset, batch.last_offset + 1)
    } == expected
    for one, after in pairwise(combined):
        assert one.last_offset < after.first_offset
        assert one.last_offset + 1 < after.first_offset or one[2:] != after[2:]


PARTITIONS = st.integers(0, 2)
CALLS = st.one_of(
    st.tuples(st.just("initialize"), PARTITIONS, st.integers(-1, 5), st.integers(0, 3)),
    st.tuples(st.just("read"), PARTITIONS, st.integers(0, 4)),
    st.tuples(st.just("write"), PARTITIONS, st.integers(-1, 9), st.lists(BATCHES, max_size=3), st.integers(-1, 4)),
    st.tuples(st.just("delete"), PARTITIONS),
    st.tuples(st.just("cold"), st.integers(1, 400_000)),
    st.tuples(st.just("prune")),
    st.tuples(st.just("failover")),
)


@given(calls=st.lists(CALLS, max_size=40))
def test_the_log_loads_to_the_same_states_also_after_redundant_records_are_deleted(
    calls: list[tuple[object, ...]],
) -> None:
    shares = Coordinated(updates_per_snapshot=3)
    for call in calls:
        match call:
            case ("initialize", int(index), int(start), int(epoch)):
                shares.initialize(start, state_epoch=epoch, key=ShareKey("g", TOPIC, index))
            case ("read", int(index), int(epoch)):
                shares.read(epoch, ShareKey("g", TOPIC, index))
            case ("write", int(index), int(start), list(batches), int(epoch)):
                key = ShareKey("g", TOPIC, index)
                shares.write(start, *batches, state_epoch=-1, leader_epoch=epoch, key=key)
            case ("delete", int(index)):
                shares.delete(ShareKey("g", TOPIC, index))
            case ("cold", int(passed_ms)):
                shares.now = Now(0, shares.now.wall_ms + passed_ms)
                shares.do(shares.machine.snapshot_cold(shares.now))
            case ("prune",):
                shares.prune()
            case _:
                shares = shares.failover()
        live = {key: state.snapshot for key, state in shares.machine.states.items()}
        loaded = {key: state.snapshot for key, state in shares.failover().machine.states.items()}
        assert live == loaded
