"""Mutations that need a whole node: B02, B03, B16, B25, B26 and B41."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kraft.broker.logs import opening_queue as log_opening
from kraft.broker.logs import truncation as log_cutting
from kraft.broker.logs.opening_queue import OpenJob
from kraft.image.dump import encoded_dump
from kraft.quorum.metadata_log import MetadataLog
from kraft.quorum.publisher import SNAPSHOT_CHUNK_EVENTS, MetadataPublisher
from kraft.quorum.raft_driver import QuorumDriver
from tests.bugbank import cluster_schedules as play
from tests.bugbank.mutation import bug
from tests.bugbank.originals import Planting

QUORUM, STORAGE, CONTROLLER = "Raft core", "Log and storage", "Controller"


@bug(
    "B02",
    "a vote leaves before it is synced",
    part=QUORUM,
    # R3: a vote names an epoch that is not on the disk of its sender.
    expected=("R19", "R2", "R1", "R3"),
    directed=play.the_active_controller_dies,
    swarm=play.clusters,
)
def vote_before_sync(plant: Planting) -> None:
    original = QuorumDriver._carry_out

    def twin(self: QuorumDriver, ready: Any) -> None:
        for answer in ready.answers:
            self._answers.give(answer)
        original(self, ready._replace(answers=()))

    plant.replace(QuorumDriver, "_carry_out", twin)


@bug(
    "B03",
    "epoch and vote are two writes, and the vote is the second one",
    part=QUORUM,
    expected=("R2", "R19", "R1"),
    directed=play.the_active_controller_dies,
    swarm=play.clusters,
)
def epoch_and_vote_apart(plant: Planting) -> None:
    original = MetadataLog.write_state
    late: dict[int, Any] = {}

    def twin(self: MetadataLog, state: Any) -> None:
        known = late.pop(id(self), None)
        if known is not None and known.epoch == state.epoch:
            original(self, known)
        late[id(self)] = state
        original(self, replace(state, voted=None))

    plant.replace(MetadataLog, "write_state", twin)


@bug(
    "B16",
    "a snapshot is made of another instant than its name says",
    part=QUORUM,
    expected=("R15", "M2"),
    directed=play.snapshots_all_the_time,
    no_swarm="few seeds make many snapshots within the ten seconds of this swarm",
)
def snapshot_of_the_wrong_instant(plant: Planting) -> None:
    publish = MetadataPublisher._publish
    before: dict[int, Any] = {}

    def remember(self: MetadataPublisher, new: Any, delta: Any) -> None:
        before[id(self)] = self.image
        publish(self, new, delta)

    def twin(self: MetadataPublisher) -> None:
        content = encoded_dump(before.get(id(self), self.image), SNAPSHOT_CHUNK_EVENTS)
        self._quorum.request_snapshot(self.image.offset, self.image.epoch, content)

    plant.replace(MetadataPublisher, "_publish", remember)
    plant.replace(MetadataPublisher, "snapshot", twin)


@bug(
    "B25",
    "a replica that starts cuts its log to the high watermark of its checkpoint",
    part=STORAGE,
    expected=("D1", "D2", "D9"),
    directed=play.a_follower_restarts,
    swarm=play.clusters,
)
def truncate_by_high_watermark(plant: Planting) -> None:
    original = OpenJob.run

    def twin(self: OpenJob) -> Any:
        log = original(self)
        if log is not None:
            log.truncate_to(self.directory.high_watermarks.get((self.topic, self.number), 0), self.now_ms)
        return log

    plant.replace(OpenJob, "run", twin)


@bug(
    "B26",
    "the high watermark stays where it was when a log begins anew",
    part=STORAGE,
    expected=("D5",),
    directed=play.a_follower_below_the_log_start,
    swarm=play.clusters,
)
def high_watermark_below_the_start(plant: Planting) -> None:
    plant.replace(log_cutting, "note_truncated", lambda partition: None)


@bug(
    "B41",
    "the log of a deleted topic is opened for the topic that has its name now",
    part=CONTROLLER,
    # D4: the old log's records count for the new topic's high watermark, and no disk has them in the new log.
    expected=("M10", "D2", "D4"),
    directed=play.a_topic_under_an_old_name,
    no_swarm="in the swarm a topic that was deleted does not come back under its name",
)
def reuse_a_deleted_log(plant: Planting) -> None:
    plant.replace(log_opening, "read_partition_metadata", lambda disk, path: None)
