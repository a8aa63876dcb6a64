"""What the active controller keeps of the brokers that it hears, beside the log."""

from __future__ import annotations

from kraft.control.decision import ToldLogEnd
from kraft.controller.broker_sessions import Sessions
from kraft.wire.rpc.controller_messages import LOG_ENDS_MAX
from tests.stages.decided_cluster import topic_id

TOPIC = topic_id(1)


def test_what_is_told_again_was_told_when_it_was_told_first() -> None:
    sessions = Sessions(9_000)
    sessions.heard(1, 5, 7, 100, 40, [(TOPIC, 0, 3, 2, 141), (TOPIC, 1, 8, -1, 0)])
    sessions.heard(1, 5, 7, 300, 41, [(TOPIC, 0, 3, 2, 141), (TOPIC, 1, 9, -1, 0)])
    assert dict(sessions.view[1].log_ends) == {
        (TOPIC, 0): ToldLogEnd(3, 2, 141, since_ms=100),
        (TOPIC, 1): ToldLogEnd(9, -1, 0, since_ms=300),
    }


def test_epochs_stand_beside_the_ends_that_they_were_told_with_and_an_older_release_tells_none() -> None:
    sessions = Sessions(9_000)
    rows = [(TOPIC, 0, 3, 2, 141), (TOPIC, 1, 8, 4, 7)]
    sessions.heard(1, 5, 7, 100, 40, rows, [((1, 0), (2, 40)), ((4, 0),)])
    ends = sessions.view[1].log_ends
    assert [ends[TOPIC, number].epochs for number in (0, 1)] == [((1, 0), (2, 40)), ((4, 0),)]
    sessions.heard(2, 6, 8, 100, 40, rows)
    assert [ends.epochs for ends in sessions.view[2].log_ends.values()] == [(), ()]


def test_what_is_told_no_more_and_what_another_incarnation_told_is_forgotten() -> None:
    sessions = Sessions(9_000)
    row = (TOPIC, 0, 3, 2, 141)
    sessions.heard(1, 5, 7, 100, 40, [row])
    sessions.heard(1, 5, 7, 200, 40)
    assert dict(sessions.view[1].log_ends) == {}
    sessions.heard(1, 5, 7, 300, 40, [row])
    sessions.heard(1, 6, 8, 400, 40, [row])
    assert dict(sessions.view[1].log_ends) == {(TOPIC, 0): ToldLogEnd(3, 2, 141, since_ms=400)}


def test_a_full_window_of_log_ends_stands_beside_what_was_told_before_it() -> None:
    sessions = Sessions(9_000)
    told = [(TOPIC, number, 3, 2, 141) for number in range(LOG_ENDS_MAX + 10)]
    sessions.heard(1, 5, 7, 100, 40, told[:LOG_ENDS_MAX])
    sessions.heard(1, 5, 7, 200, 40, told[10:])
    assert len(sessions.view[1].log_ends) == LOG_ENDS_MAX + 10
    sessions.heard(1, 5, 7, 300, 40, told[:3])
    assert len(sessions.view[1].log_ends) == 3
