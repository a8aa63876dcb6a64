"""The volatile state that the active controller keeps from heartbeats and does not write to the log."""

from __future__ import annotations

from kraft.control.decision import ReportedLogEnd
from kraft.controller.broker_sessions import Sessions
from kraft.wire.rpc.controller_messages import LOG_ENDS_MAX
from tests.stages.decided_cluster import topic_id

TOPIC = topic_id(1)


def test_log_end_reported_again_unchanged_keeps_the_time_of_its_first_report() -> None:
    sessions = Sessions(9_000)
    sessions.record_heartbeat(1, 5, 7, 100, 40, [(TOPIC, 0, 3, 2, 141), (TOPIC, 1, 8, -1, 0)])
    sessions.record_heartbeat(1, 5, 7, 300, 41, [(TOPIC, 0, 3, 2, 141), (TOPIC, 1, 9, -1, 0)])
    assert dict(sessions.view[1].log_ends) == {
        (TOPIC, 0): ReportedLogEnd(3, 2, 141, since_ms=100),
        (TOPIC, 1): ReportedLogEnd(9, -1, 0, since_ms=300),
    }


def test_reported_log_epochs_are_kept_with_their_log_ends_and_may_be_missing() -> None:
    sessions = Sessions(9_000)
    rows = [(TOPIC, 0, 3, 2, 141), (TOPIC, 1, 8, 4, 7)]
    sessions.record_heartbeat(1, 5, 7, 100, 40, rows, [((1, 0), (2, 40)), ((4, 0),)])
    ends = sessions.view[1].log_ends
    assert [ends[TOPIC, number].epochs for number in (0, 1)] == [((1, 0), (2, 40)), ((4, 0),)]
    sessions.record_heartbeat(2, 6, 8, 100, 40, rows)
    assert [ends.epochs for ends in sessions.view[2].log_ends.values()] == [(), ()]


def test_log_ends_no_longer_reported_or_of_another_incarnation_are_forgotten() -> None:
    sessions = Sessions(9_000)
    row = (TOPIC, 0, 3, 2, 141)
    sessions.record_heartbeat(1, 5, 7, 100, 40, [row])
    sessions.record_heartbeat(1, 5, 7, 200, 40)
    assert dict(sessions.view[1].log_ends) == {}
    sessions.record_heartbeat(1, 5, 7, 300, 40, [row])
    sessions.record_heartbeat(1, 6, 8, 400, 40, [row])
    assert dict(sessions.view[1].log_ends) == {(TOPIC, 0): ReportedLogEnd(3, 2, 141, since_ms=400)}


def test_log_end_report_of_maximum_size_is_merged_with_earlier_reports() -> None:
    sessions = Sessions(9_000)
    told = [(TOPIC, number, 3, 2, 141) for number in range(LOG_ENDS_MAX + 10)]
    sessions.record_heartbeat(1, 5, 7, 100, 40, told[:LOG_ENDS_MAX])
    sessions.record_heartbeat(1, 5, 7, 200, 40, told[10:])
    assert len(sessions.view[1].log_ends) == LOG_ENDS_MAX + 10
    sessions.record_heartbeat(1, 5, 7, 300, 40, told[:3])
    assert len(sessions.view[1].log_ends) == 3
