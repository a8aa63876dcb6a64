"""Schedules for logs on a simulated disk: the model of tests/storage, with the name of a check for each comparison."""

from __future__ import annotations

import contextlib
import random
from collections import deque

from kraft.seam import DiskError, StorageCorrupt
from kraft.sim.world.disk import FakeFile
from kraft.sim.world.incarnation import Incarnation
from kraft.storage.append import AppendOrigin, AppendRefused
from kraft.storage.log import LogConfig
from kraft.storage.snapshots import SnapshotId, SnapshotStore
from kraft.wire.records import read_header
from kraft.wire.records.header import BATCH_HEADER_BYTES
from tests.bugbank.mutation import Violation, require
from tests.stages.batches import LOG, NOW_MS, batch, follow, lead, marker, open_log, read, read_all, sync
from tests.stages.machine import FOLDER, Crash, DyingDisk, Machine
from tests.storage import test_cleaner_transactions
from tests.storage.test_log_against_a_model import CONFIG, Run, describe

BATCHES_REMEMBERED = 5
LOG_FILE = f"{LOG}/{0:020d}.log"
BIG = LogConfig(segment_bytes=1 << 20, index_interval_bytes=150)
TINY = LogConfig(segment_bytes=300, index_interval_bytes=150)


class NamedRun(Run):
    """A run of the model in which each comparison has the id of its invariant."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.recent: dict[int, deque[bytes]] = {}
        """The last batches of each producer that are in the log and were appended since it was opened or truncated."""

    def go(self) -> None:
        super().go()
        for _ in range(8):
            self.lead()
            self.resend()

    def lead(self) -> None:
        try:
            super().lead()
        except AppendRefused as refused:
            raise Violation("T3", f"a batch in sequence is refused: {refused}") from refused
        data = self.model.batches[-1]
        producer = read_header(data).producer_id
        if producer >= 0:
            self.recent.setdefault(producer, deque(maxlen=BATCHES_REMEMBERED)).append(data)

    def truncate(self) -> None:
        self.recent.clear()
        super().truncate()

    def restart_fully(self) -> None:
        self.recent.clear()
        super().restart_fully()

    def reopen(self, *, clean: bool) -> None:
        self.recent.clear()
        super().reopen(clean=clean)

    def resend(self) -> None:
        """Send a producer's last batches again, as if the response to one of them had been lost."""
        for batches in self.recent.values():
            data = self.draw.choice(list(batches))
            try:
                info = lead(self.log, bytearray(data), self.model.epoch)
            except AppendRefused as refused:
                raise Violation("T1", f"a batch that is in the log is refused: {refused}") from refused
            again = info.duplicate and info.base_offset == read_header(data).base_offset
            require("T1", again, f"a batch that is in the log was written again at {info.base_offset}")

    def compare(self) -> None:
        log, model = self.log, self.model
        require("D5", log.log_start_offset == model.log_start, f"start {log.log_start_offset}, not {model.log_start}")
        require("D6", log.log_end_offset == model.log_end, f"end {log.log_end_offset}, not {model.log_end}")
        try:
            assert read_all(log) == b"".join(self.from_offset(log.log_start_offset)), "all of it"
            for _ in range(3):
                self.compare_read()
        except AssertionError as error:
            raise Violation("D14", f"the log reads otherwise than it was written: {error}") from error
        self.compare_epochs()

    def compare_epochs(self) -> None:
        held = [entry for entry in self.log.epochs.entries if entry[1] >= self.model.log_start]
        beyond = [entry for entry in held if entry[1] > self.model.log_end]
        require("D7", not beyond, f"epochs {beyond} begin behind the log's end {self.model.log_end}")
        known = dict(self.model.epochs())
        # The first batch may begin in a gap at the log start offset.
        wrong = [entry for entry in held[1:] if entry[1] < self.model.log_end and known.get(entry[0], -1) != entry[1]]
        require("D7", not wrong, f"epochs {wrong}, the log has {known}")


def logs(seed: int) -> None:
    """Append, roll, truncate, delete by retention and restart; then lose power; then rebuild all derived files."""
    NamedRun(seed).go()
    _power_losses(NamedRun(seed + 1))
    _bit_rot(NamedRun(seed + 2))
    _rebuild(NamedRun(seed + 3))


def _power_losses(run: NamedRun) -> None:
    for _ in range(5):
        for _ in range(15):
            run.draw.choice([run.lead, run.lead, run.follow, run.elect, run.roll, run.sync])()
        synced = run.log.recovery_point
        run.machine.power_off(ordered=bool(run.draw.randrange(2)))
        run.saved_recovery_point = run.draw.choice([synced, run.saved_recovery_point])
        _reopen_after_power_loss(run, synced)


def _reopen_after_power_loss(run: NamedRun, synced: int) -> None:
    try:
        run.reopen(clean=False)
    except StorageCorrupt as corrupt:
        raise Violation("D12", f"a power loss is taken for damage: {corrupt}") from corrupt
    end = run.log.log_end_offset
    require("D12", synced <= end <= run.model.log_end, f"the log ends at {end}, {synced} was synced")
    run.model.truncate(end, run.log)
    whole = b"".join(run.from_offset(run.log.log_start_offset))
    try:
        require("D12", read_all(run.log) == whole, "what is left is no prefix")
    except AssertionError as error:
        raise Violation("D12", f"what is left does not read: {error}") from error
    run.forget_sequences()


def _bit_rot(run: NamedRun) -> None:
    """Flip one bit of a synced batch while the node is down. The damage must be reported, and not truncated."""
    for _ in range(20):
        run.lead()
    run.sync()
    run.machine.kill()
    segment = run.log.active
    if not segment.size:
        return
    data = bytearray(run.machine.content(segment.log.path))
    data[BATCH_HEADER_BYTES - 1] ^= 1 << run.draw.randrange(8)
    run.machine.overwrite(segment.log.path, bytes(data))
    try:
        run.reopen(clean=False)
    except StorageCorrupt:
        return
    raise Violation("D12", f"damage below the synced end {run.saved_recovery_point} was cut as a torn tail")


def _rebuild(run: NamedRun) -> None:
    run.go()
    run.delete()
    derived = describe(run.log)
    run.log.close(clean=True)
    files = {name: data for name, data in run.machine.files(LOG).items() if name.endswith(".log")}
    run.machine.copy(LOG, files)
    rebuilt = describe(open_log(run.machine, CONFIG, log_start=run.model.log_start))
    require("D13", derived.offsets == rebuilt.offsets, "the offset indexes are not what the batches say")
    if run.log.segments[0].base_offset == 0:  # otherwise the first records of the producers are deleted
        require("T3", derived.producers == rebuilt.producers, f"{derived.producers} rebuilt {rebuilt.producers}")


# recovery


def _written(machine: Machine, count: int = 6, *, config: LogConfig = BIG) -> list[bytes]:
    log = open_log(machine, config)
    found = []
    for number in range(count):
        data = batch(2, size=300, fill=b"%d" % number)
        lead(log, data)
        found.append(bytes(data))
    log.close(clean=True)
    return found


def a_torn_sector(seed: int) -> None:
    """Lose one sector of the last write: it reads as zeros, and the length of the file is right."""
    for lost in range(1, 7):
        machine = Machine(seed)
        datas = _written(machine)
        whole = bytearray(b"".join(datas))
        whole[lost * 512 : (lost + 1) * 512] = bytes(512)
        machine.overwrite(LOG_FILE, bytes(whole))
        log = open_log(machine, BIG)
        require("D12", b"".join(datas).startswith(read_all(log)), "batches with a bad CRC were kept")


def rot_below_the_synced_end(seed: int) -> None:
    machine = Machine(seed)
    whole = bytearray(b"".join(_written(machine)))
    whole[100] ^= 1
    machine.overwrite(LOG_FILE, bytes(whole))
    try:
        log = open_log(machine, BIG, recovery_point=12)
    except StorageCorrupt:
        return
    raise Violation("D12", f"12 offsets were synced, and the log was cut to {log.log_end_offset} in silence")


def power_off_after_a_roll(seed: int) -> None:
    """Roll segments, sync the new files, and lose power, so that their directory entries are lost."""
    for number in range(30):
        run = NamedRun(seed * 100 + number)
        for _ in range(3):
            for _ in range(4):
                run.lead()
            run.roll()
            run.sync()
        synced = run.log.recovery_point
        run.machine.power_off(ordered=False)
        _reopen_after_power_loss(run, synced)


def power_off_before_the_sync_of_a_roll(seed: int) -> None:
    for number in range(30):
        run = NamedRun(seed * 100 + number)
        for _ in range(3):
            for _ in range(4):
                run.lead()
            run.roll()
        run.lead()
        synced = run.saved_recovery_point = run.log.recovery_point
        run.machine.power_off()
        _reopen_after_power_loss(run, synced)


def a_sync_fails_once(seed: int) -> None:
    """Let one sync fail. The pages count as clean afterwards, so the success of a second sync proves nothing."""
    machine = Machine(seed)
    log = open_log(machine, BIG)
    lead(log, batch(2))
    sync(log)
    lead(log, batch(2))
    machine.host.sync_fails = True
    fails = machine.disk.settle

    def only_once(file: FakeFile, mark: int) -> None:
        try:
            fails(file, mark)
        finally:
            machine.host.sync_fails = False

    machine.disk.settle = only_once  # type: ignore[method-assign]
    with contextlib.suppress(DiskError):
        sync(log)
    machine.disk.settle = fails  # type: ignore[method-assign]
    promised = log.recovery_point
    machine.power_off()
    try:
        end = open_log(machine, BIG).log_end_offset
    except StorageCorrupt:
        end = -1
    require("R19", end >= promised, f"{promised} was counted as synced, {end} is left")


class HalfDisk(DyingDisk):
    """A full disk that accepts half of a write before it raises an error."""

    def write(self, file: FakeFile, data: bytes) -> None:
        if self._host.disk_full:
            file.inode.append(data[: len(data) // 2], NOW_MS)
        super().write(file, data)


def space_comes_back(seed: int) -> None:
    """Let the disk become full (ENOSPC) in the middle of a batch, and then have space again."""
    machine = Machine(seed)
    machine.kill()
    machine.disk = HalfDisk(Incarnation(machine.host, 99))
    log = open_log(machine, BIG)
    good = batch(3)
    lead(log, good)
    whole = bytes(good)
    machine.fill()
    try:
        lead(log, batch(2))
    except DiskError:
        machine.fill(False)
    try:
        more = batch(2)
        lead(log, more)
        whole += bytes(more)
    except DiskError:
        pass
    require("D6", read(log, 0).read() == whole, "bytes of a batch that failed stand in the log")
    machine.kill()
    require("D12", read_all(open_log(machine, BIG)) == whole, "after the restart the log is another")


# truncation, rolls, snapshots


def elections_without_data(seed: int) -> None:
    """Begin epochs without records and truncate them; then restart."""
    machine = Machine(seed)
    log = open_log(machine, BIG)
    lead(log, batch(4), 1)
    log.epochs.assign(2, 4)
    lead(log, batch(2), 3)
    log.truncate_to(4, NOW_MS)
    found = log.epochs.entries
    require("D7", found in (((1, 0),), ((1, 0), (2, 4))), f"the log ends at 4, its epochs are {found}")
    require("D7", not any(start >= 4 for _, start in found), f"epochs begin behind the end: {found}")
    log.close(clean=True)
    again = open_log(machine, BIG, clean=True, recovery_point=4)
    require("D7", again.epochs.entries == ((1, 0),), f"after the restart: {again.epochs.entries}")


def fetches_at_every_offset(seed: int) -> None:
    """Fetch at every offset of a log with tiny segments, without any fault."""
    log = open_log(Machine(seed), TINY)
    datas = [batch(2, size=60) for _ in range(12)]
    for data in datas:
        lead(log, data)
    for offset in range(24):
        found, wanted = read(log, offset).read(), b"".join(map(bytes, datas[offset // 2 :]))
        require("D14", found and wanted.startswith(found), f"a fetch at {offset} skips or repeats")


def a_crash_while_a_snapshot_is_written(seed: int) -> None:
    """Crash at every disk operation while a snapshot is written. A snapshot that has its final name must be
    complete."""
    snapshot = SnapshotId(120, 4)
    for number in range(20):
        machine = Machine(seed * 100 + number)
        store = SnapshotStore(machine.disk, FOLDER)
        machine.disk.die_before = machine.disk.operations + number
        try:
            writer = store.create(snapshot, last_contained_log_timestamp=0, now_ms=NOW_MS)
            writer.append((b"one", b"two"))
            writer.append((b"three",))
            writer.finish()
        except Crash:
            machine.power_off()
        store = SnapshotStore(machine.disk, FOLDER)
        for found in store.list():
            try:
                store.open(found).validate()
            except StorageCorrupt as corrupt:
                raise Violation("M2", f"a snapshot with its name is not whole: {corrupt}") from corrupt


# compaction and producers


def markers_outlive_their_data(seed: int) -> None:
    """Compact transactions that span two segments. A marker must stay as long as any record of its transaction."""
    for story in (
        test_cleaner_transactions.test_compaction_keeps_a_marker_while_any_of_its_data_remains,
        test_cleaner_transactions.test_an_aborted_transaction_with_a_remaining_empty_batch_keeps_marker_and_entry,
    ):
        try:
            story()
        except AssertionError as error:
            raise Violation("D17", f"{error}") from error


def five_in_flight(seed: int) -> None:
    """Write five batches, lose the response to the oldest, and let the client retry it."""
    log = open_log(Machine(seed), BIG)
    for sequence in range(5):
        lead(log, batch(1, producer=(7, 0, sequence)))
    for sequence in range(5):
        try:
            again = lead(log, batch(1, producer=(7, 0, sequence)))
        except AppendRefused as refused:
            raise Violation("T1", f"a batch that is in the log was refused: {refused}") from refused
        require("T1", again.duplicate and again.base_offset == sequence, f"sequence {sequence} was written twice")


def producers_after_a_restart(seed: int) -> None:
    """Reopen the log, cleanly and uncleanly. The next batch must be accepted, and the last one must be recognized as a
    duplicate."""
    for clean in (True, False):
        machine = Machine(seed)
        log = open_log(machine, TINY)
        for sequence in range(20):
            lead(log, batch(1, producer=(7, 0, sequence)))
        rows = log.producers.snapshot()
        log.close(clean=clean)
        machine.kill()
        log = open_log(machine, TINY, clean=clean, recovery_point=20 if clean else 0)
        require("T3", log.producers.snapshot() == rows, f"{rows} became {log.producers.snapshot()}")
        require("T1", lead(log, batch(1, producer=(7, 0, 19))).duplicate, "a duplicate was written")


def a_marker_keeps_its_producer(seed: int) -> None:
    """Write data with old timestamps, abort the transaction by its coordinator, which raises the epoch, and wait until
    expiry."""
    log = open_log(Machine(seed), LogConfig(segment_bytes=1 << 20, producer_id_expiration_ms=1_000))
    lead(log, batch(1, producer=(7, 0, 0), transactional=True, timestamp=NOW_MS - 100_000))
    lead(log, marker(7, 1, commit=False), origin=AppendOrigin.COORDINATOR)
    log.expire_producers(NOW_MS + 500)
    try:
        late = lead(log, batch(1, producer=(7, 0, 1), transactional=True))
    except AppendRefused:
        return
    raise Violation("T4", f"epoch 0 was written at {late.base_offset}, behind the marker of epoch 1")


def replicas_of_producers(seed: int) -> None:
    """Compare the producer state of a leader, a follower, and a rebuilt log at the same offset."""
    draw = random.Random(seed)
    leader_log, follower_log = open_log(Machine(seed), TINY), open_log(Machine(seed + 1), TINY)
    sequences: dict[int, int] = {}
    for _ in range(40):
        producer, count = draw.randrange(4), draw.randint(1, 3)
        first = sequences.get(producer, 0)
        data = batch(count, producer=(producer, 0, first))
        info = lead(leader_log, data)
        require("T2", info.base_offset + count == leader_log.log_end_offset, f"{info}")
        sequences[producer] = first + count
        follow(follower_log, bytes(data))
        mine, theirs = leader_log.producers.snapshot(), follower_log.producers.snapshot()
        require("T3", mine == theirs, f"leader {mine}, follower {theirs}")
