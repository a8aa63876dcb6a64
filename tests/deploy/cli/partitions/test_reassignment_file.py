"""Reassignment plans as files, and the replicas that a throttle applies to."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.client.admin.reassign_throttle import throttled_replicas
from kraft.deploy.cli.output import CommandFailed
from kraft.deploy.cli.partitions.reassignment_file import Placement, read_plan, read_topics, save_plan, write_plan


def written(folder: Path, text: str) -> Path:
    path = folder / "plan.json"
    path.write_text(text)
    return path


def test_a_written_reassignment_file_is_read_back_unchanged(tmp_path: Path) -> None:
    plan = {("b", 1): (2, 1), ("b", 0): (1,), ("a", 10): (3,)}
    text = write_plan(plan)
    assert text.startswith('{"version":1,"partitions":[{"topic":"a","partition":10,"replicas":[3],"log_dirs":["any"]}')
    read = read_plan(written(tmp_path, text))
    assert read == {one: Placement(replicas, ("any",) * len(replicas)) for one, replicas in plan.items()}


def test_a_reassignment_file_of_kafkas_tool_is_read_with_and_without_directories(tmp_path: Path) -> None:
    text = """{"version":1,"partitions":[
        {"topic":"t","partition":0,"replicas":[1,2]},
        {"topic":"t","partition":1,"replicas":[2,1],"log_dirs":["any","/disk2"]}]}"""
    assert read_plan(written(tmp_path, text)) == {
        ("t", 0): Placement((1, 2)),
        ("t", 1): Placement((2, 1), ("any", "/disk2")),
    }


def test_a_file_of_topics_to_move_is_read(tmp_path: Path) -> None:
    assert read_topics(written(tmp_path, '{"topics": [{"topic": "a"}, {"topic": "b"}], "version":1}')) == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty: did the command"),
        ("\n", "the file is empty"),
        ("{", "not JSON"),
        ("[]", 'a list "partitions"'),
        ('{"partitions": []}', "is empty"),
        ('{"version": 2, "partitions": [1]}', "version 2 is not known"),
        ('{"partitions": [1]}', r'partitions\[0\]: expected a field "topic"'),
        ('{"partitions": [{"topic": "t", "partition": "0", "replicas": [1]}]}', '"partition" with a value of type int'),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "list of broker ids"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}', "list of broker ids"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "names a broker twice"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["a", "b"]}]}', "log_dirs"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": 5}]}', "log_dirs"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": "ab"}]}', "log_dirs"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": [5]}]}', "log_dirs"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            ' {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "t-0 stands twice",
        ),
    ],
)
def test_an_invalid_reassignment_file_is_refused_with_the_reason(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CommandFailed, match=message):
        read_plan(written(tmp_path, text))


def test_a_missing_reassignment_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="No such file"):
        read_plan(tmp_path / "nothing")


def test_a_reassignment_plan_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="nowhere/plan: No such file"):
        save_plan(tmp_path / "nowhere" / "plan", {("t", 0): (1,)})


def test_a_throttle_names_the_sources_and_destinations_of_moving_replicas() -> None:
    before = {("t", 0): (2, 1), ("t", 1): (1, 2), ("u", 0): (1,)}
    after = {("t", 0): (3, 1), ("t", 1): (2, 1), ("u", 0): (1,)}
    assert throttled_replicas(before, after) == {
        "t": {
            "leader.replication.throttled.replicas": "0:1,0:2",
            "follower.replication.throttled.replicas": "0:3",
        }
    }
