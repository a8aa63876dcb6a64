"""Legal changes of the voter set, and the record that a new leader writes if the voter set has an outdated address for
it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft.raft.identity import ReplicaKey, Voter, VoterSet
from kraft.raft.inputs import VotersChangeRequested
from kraft.raft.ready import AppendVoters
from kraft.raft.state import Progress
from kraft.raft.voter_changes import (
    OBSERVER_SILENCE_MS_MAX,
    VotersRefused,
    refuse_newcomer,
    with_address,
    with_voter,
    without_voter,
)
from kraft.seam import Address
from kraft.seam.ids import encode_uuid
from kraft.wire.error_codes import ErrorCode
from tests.stages.single_core import ME, A, B, C, Single, directory, key, voter_set

THREE = voter_set(ME, A, B, directories=True)
STATIC = voter_set(ME, A, B)


def code(outcome: VoterSet | VotersRefused) -> ErrorCode:
    assert isinstance(outcome, VotersRefused)
    assert outcome.message
    return outcome.code


def voter(node_id: int, port: int = 9000) -> Voter:
    return Voter(key(node_id), Address(f"n{node_id}", port))


def test_voter_set_changes_add_remove_and_move_a_voter() -> None:
    four = with_voter(THREE, voter(C))
    assert four == voter_set(ME, A, B, C, directories=True)
    assert without_voter(voter_set(ME, A, B, C, directories=True), key(C)) == THREE
    moved = with_address(THREE, voter(A, 9999))
    assert isinstance(moved, VoterSet)
    found = moved.find(A)
    assert found is not None
    assert found.address.port == 9999
    assert moved.differs_by(THREE) == 0
    assert with_address(THREE, voter(A)) is THREE


def test_illegal_voter_changes_are_refused() -> None:
    assert code(with_voter(THREE, voter(A))) is ErrorCode.DUPLICATE_VOTER
    other_disk = replace(voter(A), key=ReplicaKey(A, directory(99)))
    assert code(with_voter(THREE, other_disk)) is ErrorCode.DUPLICATE_VOTER
    assert code(with_voter(THREE, replace(voter(C), key=ReplicaKey(C)))) is ErrorCode.INVALID_REQUEST
    assert code(without_voter(THREE, key(C))) is ErrorCode.VOTER_NOT_FOUND
    assert code(without_voter(THREE, other_disk.key)) is ErrorCode.VOTER_NOT_FOUND
    assert code(without_voter(THREE, ReplicaKey(A))) is ErrorCode.VOTER_NOT_FOUND
    assert code(without_voter(voter_set(ME, directories=True), key(ME))) is ErrorCode.VOTER_NOT_FOUND
    assert code(with_address(THREE, voter(C))) is ErrorCode.VOTER_NOT_FOUND
    assert code(with_address(THREE, other_disk)) is ErrorCode.VOTER_NOT_FOUND


def test_voter_change_refusals_begin_with_the_text_of_kafkas_tools() -> None:
    refused = [
        (with_voter(THREE, voter(A)), f"The voter id for ReplicaKey(id={A}, directoryId="),
        (without_voter(THREE, key(C)), f"Cannot remove voter ReplicaKey(id={C}, directoryId="),
        (
            without_voter(THREE, ReplicaKey(A)),
            f"Cannot remove voter ReplicaKey(id={A}, directoryId=<undefined>) from the",
        ),
        (with_voter(STATIC, voter(C)), "Cluster doesn't support adding voter because the kraft.version feature is 0"),
        (
            without_voter(STATIC, key(A)),
            "Cluster doesn't support removing voter because the kraft.version feature is 0",
        ),
        (refuse_newcomer(key(C), None, 0), f"Aborted add voter operation for ReplicaKey(id={C}, directoryId="),
    ]
    for outcome, words in refused:
        assert isinstance(outcome, VotersRefused)
        assert outcome.message.startswith(words)


def test_voter_change_refusal_writes_directory_ids_as_kafka_does() -> None:
    refused = without_voter(THREE, ReplicaKey(A, directory(99)))
    assert isinstance(refused, VotersRefused)
    for one in (99, A):
        assert encode_uuid(directory(one)) in refused.message


def test_static_voter_set_cannot_be_changed() -> None:
    assert code(with_voter(STATIC, voter(C))) is ErrorCode.UNSUPPORTED_VERSION
    assert code(without_voter(STATIC, key(A))) is ErrorCode.UNSUPPORTED_VERSION
    assert code(with_address(STATIC, voter(A, 9999))) is ErrorCode.UNSUPPORTED_VERSION


def test_added_voter_must_have_caught_up_and_be_alive() -> None:
    caught_up = Progress(end_offset=5, last_fetch_ms=1_000, last_caught_up_ms=900, leader_end_at_last_fetch=5)
    assert refuse_newcomer(key(C), caught_up, 2_000) is None
    behind = replace(caught_up, last_caught_up_ms=-1)
    late = 1_000 + OBSERVER_SILENCE_MS_MAX + 1
    for refused in (
        refuse_newcomer(key(C), None, 2_000),
        refuse_newcomer(key(C), behind, 2_000),
        refuse_newcomer(key(C), caught_up, late),
    ):
        assert refused is not None
        assert refused.code is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("port", [9000, 9999])
def test_new_leader_with_an_outdated_address_in_the_voter_set_appends_its_address(port: int) -> None:
    """The address that the new leader has and must append is n1:9000."""
    voters = VoterSet((voter(ME, port), voter(A), voter(B)))
    single = Single(voters=voters, epochs=((1, 0),), end_offset=3)
    single.raft.log.voters.append(2, voters)
    single.become_leader()
    appended = [action for action in single.last.log if isinstance(action, AppendVoters)]
    assert [action.voters for action in appended] == ([] if port == 9000 else [THREE])
    assert single.raft.voters == THREE


def test_sole_leader_gives_an_added_second_voter_a_full_check_quorum_period() -> None:
    single = Single(voters=voter_set(ME, directories=True))
    while not single.raft.is_leader:
        single.tick_to_deadline()
    single.sync()
    single.now += 10 * single.settings.check_quorum_ms
    single.step(VotersChangeRequested(voter_set(ME, A, directories=True)))
    single.tick()
    assert single.raft.is_leader
    single.tick(single.settings.check_quorum_ms)
    assert not single.raft.is_leader, "no fetch arrived"
