"""A log directory: its owner, its lock, its clean-shutdown file, and its logs."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraft.storage.log_dir import DirectoryInUse, LogDirectory, format_directory
from kraft.storage.meta_properties import ForeignDirectory, MetaProperties
from tests.stages.batches import batch, lead, open_log, read_all
from tests.stages.machine import FOLDER, Machine

ID = UUID("12345678-9abc-def0-1234-56789abcdef0")


@pytest.fixture
def machine() -> Machine:
    machine = Machine(1)
    format_directory(machine.disk, FOLDER, MetaProperties("cluster-1", 7, ID))
    return machine


def opened(machine: Machine, **options: object) -> LogDirectory:
    options.setdefault("node_id", 7)
    return LogDirectory.open_directory(machine.disk, FOLDER, **options)  # type: ignore[arg-type]


def test_a_formatted_log_directory_opens_for_its_node(machine: Machine) -> None:
    directory = opened(machine, cluster_id="cluster-1")
    assert directory.directory_id == ID
    assert opened_again_fails(machine)
    directory.close()
    opened(machine).close()


def opened_again_fails(machine: Machine) -> bool:
    with pytest.raises(DirectoryInUse, match="another process has this folder open"):
        opened(machine)
    return True


def test_the_log_directory_lock_ends_with_the_process(machine: Machine) -> None:
    opened(machine)
    machine.kill()
    opened(machine)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"node_id": 8}, "belongs to node 7, this is node 8"),
        ({"node_id": 7, "cluster_id": "other"}, "belongs to cluster cluster-1, this node to cluster other"),
    ],
)
def test_a_log_directory_of_another_node_is_refused_and_its_lock_is_released(
    machine: Machine, options: dict[str, object], why: str
) -> None:
    with pytest.raises(ForeignDirectory, match=why):
        opened(machine, **options)
    opened(machine)


def test_an_unformatted_log_directory_is_an_error_that_explains_formatting() -> None:
    machine = Machine()
    with pytest.raises(ForeignDirectory, match=r"has no meta.properties; format it with `kraft storage format`"):
        opened(machine)
    with pytest.raises(ForeignDirectory, match="there is no such folder"):
        LogDirectory.open_directory(machine.disk, "/elsewhere", node_id=1)


def test_formatting_a_formatted_log_directory_is_refused(machine: Machine) -> None:
    with pytest.raises(ForeignDirectory, match="is formatted already"):
        format_directory(machine.disk, FOLDER, MetaProperties("cluster-1", 7, ID))


def test_a_clean_shutdown_file_is_used_once(machine: Machine) -> None:
    directory = opened(machine)
    assert directory.take_clean_shutdown() is None
    directory.write_clean_shutdown(42)
    assert machine.content(f"{FOLDER}/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":42}'
    machine.power_off()
    directory = opened(machine)
    clean = directory.take_clean_shutdown()
    assert clean is not None
    assert clean.broker_epoch == 42
    machine.power_off()
    assert opened(machine).take_clean_shutdown() is None


def test_empty_clean_shutdown_file_counts_as_a_clean_stop_without_a_broker_epoch(machine: Machine) -> None:
    machine.put(f"{FOLDER}/.kafka_cleanshutdown", b"")
    clean = opened(machine).take_clean_shutdown()
    assert clean is not None
    assert clean.broker_epoch == -1


def test_log_directory_checkpoints_read_back_and_damage_is_only_a_warning(machine: Machine) -> None:
    directory = opened(machine)
    assert directory.read_recovery_points() == {}
    directory.write_recovery_points({("a", 0): 1})
    directory.write_log_starts({("a", 0): 2})
    directory.write_high_watermarks({("a", 0): 3})
    directory.write_cleaner_offsets({("a", 0): 4})
    directory.write_index_recovery_points({("a", 0): 5})
    machine.power_off()
    directory = opened(machine)
    found = [
        directory.read_recovery_points(),
        directory.read_log_starts(),
        directory.read_high_watermarks(),
        directory.read_cleaner_offsets(),
        directory.read_index_recovery_points(),
    ]
    assert found == [{("a", 0): value} for value in (1, 2, 3, 4, 5)]
    machine.overwrite(f"{FOLDER}/replication-offset-checkpoint", b"junk")
    assert directory.read_high_watermarks() == {}
    assert "replication-offset-checkpoint" in directory.warnings[0]


def test_logs_in_a_directory_are_found_by_folder_name(machine: Machine) -> None:
    for name in (
        "b-1",
        "a-10",
        "a-2",
        "__cluster_metadata-0",
        "lost+found",
        f"a-3.{ID.hex}-delete",
        f"b-2.{ID.hex}-stray",
    ):
        machine.disk.make_directory(f"{FOLDER}/{name}")
    directory = opened(machine)
    found = directory.find_logs()
    assert found.partitions == (("a", 2), ("a", 10), ("b", 1))
    assert found.to_delete == (f"{FOLDER}/a-3.{ID.hex}-delete",)
    assert found.stray == (f"{FOLDER}/b-2.{ID.hex}-stray",)
    assert found.future == ()
    assert "lost+found" in directory.warnings[0]


def test_deleted_topic_can_be_created_again_while_its_old_files_wait_for_deletion(machine: Machine) -> None:
    directory = opened(machine)
    path = directory.partition_path("orders", 0)
    log = open_log(machine, directory=path)
    lead(log, batch(3))
    old = read_all(log)
    log.release()
    retired = directory.retire("orders", 0, ID)
    again = open_log(machine, directory=path)
    assert again.log_end_offset == 0
    machine.power_off()
    directory = opened(machine)
    assert directory.find_logs().to_delete == (retired,)
    assert old
    machine.disk.remove_tree(retired)
    assert directory.find_logs().to_delete == ()
