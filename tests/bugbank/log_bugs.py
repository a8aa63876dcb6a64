"""Mutations of logs and storage: B19 to B24, B27 to B30, and the producer state B59 to B61."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from kraft.seam import DiskError
from kraft.storage import appending, loading, reading, recovery, snapshots, sync_plan
from kraft.storage.compaction.transaction_state import CleanedTransactions
from kraft.storage.epochs import EpochCache
from kraft.storage.handles import Handle
from kraft.storage.producers.producer_state import ProducerEntry, ProducerStates
from kraft.storage.sync_plan import SyncPlan
from tests.bugbank import log_schedules as play
from tests.bugbank.mutation import bug
from tests.bugbank.originals import Planting

PART = "Log and storage"
PRODUCERS = "Idempotence"


@bug(
    "B19",
    "recovery looks at lengths and not at CRCs",
    part=PART,
    expected=("D12", "D6", "R5"),
    directed=play.a_torn_sector,
    swarm=play.logs,
)
def torn_tail_accepted(plant: Planting) -> None:
    plant.replace(recovery, "check_crc", lambda data, at, header: True)


@bug(
    "B20",
    "every bad CRC is a torn tail",
    part=PART,
    expected=("D12", "R10", "D1"),
    directed=play.rot_below_the_synced_end,
    swarm=play.logs,
)
def all_damage_is_torn(plant: Planting) -> None:
    plant.replace(recovery, "require_torn", lambda *arguments, **options: None, loading)


@bug(
    "B21",
    "a directory is not synced after a roll",
    part=PART,
    expected=("D12", "R3", "R19"),
    directed=play.power_off_after_a_roll,
    swarm=play.logs,
)
def no_directory_sync(plant: Planting) -> None:
    def twin(self: SyncPlan) -> None:
        for rolled in self.rolled:
            rolled.sync()
        if self.active is not None:
            sync_plan.sync_handle(self.active)
        for path, data in self.writes:
            file = self.disk.create(path + ".tmp")
            file.append(data)
            file.sync_blocking()
            file.close()
            self.disk.rename(path + ".tmp", path)

    plant.replace(SyncPlan, "run", twin)


@bug(
    "B22",
    "a failed sync is tried again",
    part=PART,
    expected=("R19", "D12"),
    directed=play.a_sync_fails_once,
    no_swarm="the log swarm has no disk errors; whole clusters stop a node whose sync failed at its first use",
)
def retry_a_failed_sync(plant: Planting) -> None:
    original = sync_plan.sync_handle

    def twin(handle: Handle) -> None:
        try:
            original(handle)
        except DiskError:
            original(handle)

    plant.replace(sync_plan, "sync_handle", twin)


@bug(
    "B23",
    "the recovery point moves at the roll, before the segment is synced",
    part=PART,
    expected=("D12", "D5"),
    directed=play.power_off_before_the_sync_of_a_roll,
    swarm=play.logs,
)
def recovery_point_too_early(plant: Planting) -> None:
    original = appending.AppendableLog._roll

    def twin(self: Any, now_ms: int) -> None:
        original(self, now_ms)
        self.recovery_point = max(self.recovery_point, self.active.base_offset)

    plant.replace(appending.AppendableLog, "_roll", twin)


@bug(
    "B24",
    "a truncation leaves the epochs as they are",
    part=PART,
    expected=("D7", "D2"),
    directed=play.elections_without_data,
    swarm=play.logs,
)
def epochs_outlive_truncation(plant: Planting) -> None:
    def twin(self: EpochCache, end_offset: int) -> bool:
        return False

    plant.replace(EpochCache, "truncate_from_end", twin)


@bug(
    "B27",
    "a snapshot has its name before it is whole",
    part=PART,
    expected=("M1", "M2", "G7"),
    directed=play.a_crash_while_a_snapshot_is_written,
    no_swarm="the log swarm writes no snapshots",
)
def snapshot_in_place(plant: Planting) -> None:
    def twin(self: Any, disk: Any, directory: str, path: str) -> None:
        self._disk, self._directory, self.path = disk, directory, path
        self.file = disk.create(path)

    def finish(self: Any) -> None:
        self.file.sync_blocking()
        self.file.close()
        self._disk.sync_directory(self._directory)

    plant.replace(snapshots._Part, "__init__", twin)
    plant.replace(snapshots._Part, "finish", finish)


@bug(
    "B28",
    "after a full disk the log goes on behind half a batch",
    part=PART,
    expected=("D6", "D13", "D12"),
    directed=play.space_comes_back,
    no_swarm="the log swarm's disk takes a write as a whole or not at all",
)
def go_on_after_a_full_disk(plant: Planting) -> None:
    plant.replace(appending.AppendableLog, "_fail", lambda self, error: None)


@bug(
    "B29",
    "a fetch at a segment's first offset skips a batch",
    part=PART,
    expected=("D14", "C2"),
    directed=play.fetches_at_every_offset,
    swarm=play.logs,
)
def skip_at_a_roll(plant: Planting) -> None:
    original = reading.read_slice

    def twin(segments: Sequence[Any], offset: int, *arguments: Any, **options: Any) -> Any:
        for segment in segments[1:]:
            if segment.base_offset == offset and segment.size:
                return original(segments, segment.header_at(0).next_offset, *arguments, **options)
        return original(segments, offset, *arguments, **options)

    plant.replace(reading, "read_slice", twin)


@bug(
    "B30",
    "compaction drops markers before the data of their transactions",
    part=PART,
    expected=("T6", "D17", "T5"),
    directed=play.markers_outlive_their_data,
    no_swarm="the log swarm does not compact; tests/storage/test_cleaner_against_a_model.py does",
)
def forget_markers(plant: Planting) -> None:
    original = CleanedTransactions.on_marker

    def twin(self: CleanedTransactions, header: Any, found: Any) -> bool:
        original(self, header, found)
        return True

    plant.replace(CleanedTransactions, "on_marker", twin)


@bug(
    "B59",
    "of a producer only the last batch is remembered",
    part=PRODUCERS,
    expected=("T1",),
    directed=play.five_in_flight,
    swarm=play.logs,
)
def dedupe_window_of_one(plant: Planting) -> None:
    original = ProducerEntry.__init__

    def twin(self: ProducerEntry, epoch: int) -> None:
        original(self, epoch)
        self.batches = deque(maxlen=1)

    plant.replace(ProducerEntry, "__init__", twin)


@bug(
    "B60",
    "a restarted replica begins with an empty producer table",
    part=PRODUCERS,
    expected=("T3", "T1"),
    directed=play.producers_after_a_restart,
    swarm=play.logs,
)
def producers_not_rebuilt(plant: Planting) -> None:
    def twin(disk: Any, directory: str, segments: Any, offset: int, config: Any, now_ms: int) -> ProducerStates:
        return ProducerStates(offset)

    plant.replace(loading, "load_producers", twin)
    plant.replace(loading, "apply_to", lambda producers, header, batch: None)


@bug(
    "B60b",
    "a follower keeps no producer table",
    part=PRODUCERS,
    expected=("T3", "T1"),
    directed=play.replicas_of_producers,
    swarm=play.logs,
)
def followers_without_producers(plant: Planting) -> None:
    original = appending.AppendableLog._append_group

    def twin(self: Any, view: memoryview, group: Any, now_ms: int) -> None:
        kept = self.producers.entries
        self.producers.entries = {}
        original(self, view, group, now_ms)
        self.producers.entries = kept

    plant.replace(appending.AppendableLog, "_append_group", twin)


@bug(
    "B61",
    "a producer's expiry looks at its data and not at its markers",
    part=PRODUCERS,
    expected=("T4", "T3"),
    directed=play.a_marker_keeps_its_producer,
    no_swarm="the log swarm writes no markers",
)
def expire_too_early(plant: Planting) -> None:
    original = ProducerStates.apply_marker

    def twin(self: ProducerStates, producer_id: int, epoch: int, *arguments: Any, **options: Any) -> Any:
        before = self.entries.get(producer_id)
        kept = -1 if before is None else before.last_timestamp
        found = original(self, producer_id, epoch, *arguments, **options)
        self.entries[producer_id].last_timestamp = kept
        return found

    plant.replace(ProducerStates, "apply_marker", twin)
