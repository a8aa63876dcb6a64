"""The kraft command, as a user runs it: every verb, its JSON, its exit codes."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from kraft.deploy.launch.layout import ClusterLayout
from tests.deploy.clusters import Command, free_port

NOWHERE = "127.0.0.1:1"
TWO_CONTROLLERS = "1@a:1:AAAAAAAAAAAAAAAAAAAAAQ,2@b:2:AAAAAAAAAAAAAAAAAAAAAg"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def up(home: Path) -> Iterator[Command]:
    """A cluster of one controller and two brokers, which is the one started last."""
    shape = ClusterLayout(controllers=1, brokers=2)
    kraft = Command(home / "state")
    arguments = ("--controllers", "1", "--brokers", "2", "--data", home / "data", "--port", str(free_port(shape)))
    answer = kraft.spawn("up", *arguments, "--background", "--set", "num.partitions=2", "--json")
    assert json.loads(answer)["ready"] is True
    yield kraft
    kraft.run("down")


@pytest.fixture
def kraft(tmp_path: Path) -> Command:
    """The command in a home where no cluster was ever started."""
    return Command(tmp_path / "state")


def test_status_shows_every_node(up: Command, home: Path) -> None:
    status = up.json("status")
    assert [(node["node"], node["roles"], node["state"]) for node in status["nodes"]] == [
        (101, ["controller"], "ready"),
        (1, ["broker"], "ready"),
        (2, ["broker"], "ready"),
    ]
    assert status["up"] is True
    assert status["data"] == str(home / "data")
    assert "STATE" in up.run("status")


def test_a_topic_is_created_described_grown_and_deleted(up: Command) -> None:
    created = up.json("topics", "create", "life", "--replication-factor", "2", "--config", "retention.ms=1000")
    assert created == {"topic": "life", "partitions": 2, "replication_factor": 2}
    described = up.json("topics", "describe", "life")
    assert described["settings"] == {"retention.ms": "1000"}
    assert [sorted(part["replicas"]) for part in described["partitions"]] == [[1, 2], [1, 2]]
    up.run("topics", "alter", "life", "--partitions", "3")
    assert ["life", 3] in [[row["topic"], row["partitions"]] for row in up.json("topics", "list")]
    assert "LEADER" in up.run("topics", "describe", "life")
    up.run("topics", "delete", "life")
    assert "was not there" in up.run("topics", "delete", "life", "--if-exists")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in up.run("topics", "describe", "life", code=4)


def test_each_of_several_names_is_told_of_also_when_one_fails(up: Command) -> None:
    up.run("topics", "create", "one", "two")
    assert "TOPIC_ALREADY_EXISTS" in up.run("topics", "create", "one", "three", code=1)
    shown = up.spawn("topics", "describe", "nope", "three", code=4)
    assert "nope" in shown
    told = json.loads(up.printed("topics", "delete", "one", "nope", "two", "--json", code=4))
    assert [(row["topic"], row.get("deleted"), "error" in row) for row in told] == [
        ("one", True, False),
        ("nope", None, True),
        ("two", True, False),
    ]
    assert up.printed("topics", "delete", "nope", "three", code=4) == "topic three deleted\n"
    assert "give --yes" in up.run("topics", "delete", "__consumer_offsets", code=2)


def test_a_topic_that_exists_is_refused(up: Command) -> None:
    up.run("topics", "create", "twice")
    said = up.run("topics", "create", "twice", code=1)
    assert "TOPIC_ALREADY_EXISTS" in said
    assert "--if-not-exists" in said
    assert "is there already" in up.run("topics", "create", "twice", "--if-not-exists")


def test_partitions_are_chosen_and_their_offsets_shown(up: Command) -> None:
    up.run("topics", "create", "parts", "--replica-assignment", "1:2,2:1,1:2")
    up.run("produce", "parts", "--partition", "1", "--timestamp", "5000", text="a\nb\n")
    rows = up.json("partitions", "list", "parts:1-2")
    assert [(row["partition"], row["replicas"], row["end_offset"]) for row in rows] == [(1, [2, 1], 2), (2, [1, 2], 0)]
    assert up.json("partitions", "offsets", "parts:1", "--at", "5000")[0]["offset"] == 0
    assert up.json("partitions", "offsets", "parts:1", "--at", "5001")[0]["offset"] is None
    assert "give --yes" in up.run("partitions", "delete-records", "parts:1", "--before", "1", code=2)
    assert up.json("partitions", "delete-records", "parts:1", "--before", "1", "--yes")[0]["first_offset"] == 1
    assert "has partitions 0 to 2, not 7" in up.run("partitions", "list", "parts:7", code=4)
    assert up.json("partitions", "elect", "parts")[0]["result"] == "not needed"
    assert [row["partition"] for row in up.json("partitions", "producers", "parts")] == [1]


def test_replicas_are_moved_as_a_plan_says(up: Command, tmp_path: Path) -> None:
    up.run("topics", "create", "movable", "--replica-assignment", "1,1,1,1")
    up.run("produce", "movable", text="a\nb\n")
    back, there = tmp_path / "back.json", tmp_path / "there.json"
    there.write_text(up.run("partitions", "reassign", "plan", "movable", "--save-current", back))
    up.run("partitions", "reassign", "verify", there, code=1)
    begun = up.json("partitions", "reassign", "execute", there, "--throttle", "10000000", "--wait")
    assert sorted(row["target"] for row in begun) == [[1], [1], [2], [2]]
    assert {row["state"] for row in up.json("partitions", "reassign", "verify", there)} == {"done"}
    assert up.json("partitions", "reassign", "list") == []
    assert up.json("topics", "describe", "movable")["settings"] == {}
    assert sorted(up.run("consume", "movable").split()) == ["a", "b"]
    assert "nothing to do" in up.run("partitions", "reassign", "cancel", there)
    up.run("partitions", "reassign", "execute", back, "--wait")
    assert {tuple(part["replicas"]) for part in up.json("topics", "describe", "movable")["partitions"]} == {(1,)}


def test_a_move_is_waited_for_though_another_was_refused(up: Command, tmp_path: Path) -> None:
    up.run("topics", "create", "half", "--replica-assignment", "1,1")
    plan = tmp_path / "plan.json"
    rows = [{"topic": "half", "partition": 0, "replicas": [2]}, {"topic": "half", "partition": 1, "replicas": [1, 2]}]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    execute = (
        "partitions",
        "reassign",
        "execute",
        plan,
        "--keep-replication-factor",
        "--throttle",
        "9000000",
        "--json",
    )
    moved, refused = json.loads(up.printed(*execute, "--wait", code=1))
    assert moved["result"] == "done"
    assert "INVALID_REPLICATION_FACTOR" in refused["result"]
    assert up.json("topics", "describe", "half")["settings"] == {}
    assert json.loads(up.printed(*execute, code=1))[0]["result"] == "begun"
    up.run("partitions", "reassign", "verify", plan, code=1)


def test_records_go_in_and_come_out(up: Command) -> None:
    up.run("topics", "create", "records", "--partitions", "1")
    sent = up.json("produce", "records", "--key-separator", ":", text="a:1\nb:2\nc:3\n")
    assert [report["offset"] for report in sent] == [0, 1, 2]
    assert up.run("consume", "records") == "a\t1\nb\t2\nc\t3\n"
    assert up.run("consume", "records", "--offset", "1", "-n", "1") == "b\t2\n"
    line = up.run("consume", "records", "-n", "1", "--json")
    assert json.loads(line)["key"] == "a"
    assert up.run("consume", "records", "--offset", "latest") == ""
    assert up.run("consume", "records", "--offset", "-1") == "c\t3\n"
    assert up.run("consume", "records", "--offset", "1:2") == "b\t2\n"
    assert up.run("consume", "records:0", "--key", "[ac]", "--format", "%o=%s ") == "0=1 2=3 "
    assert up.run("consume", "records", "--until", "-1h") == ""


def test_records_are_copied_as_json_lines_with_all_that_they_have(up: Command) -> None:
    up.run("topics", "create", "original", "copy", "--partitions", "2")
    options = ("--header", "h=1", "--timestamp", "7000", "--null", "NULL", "--compression", "lz4")
    up.run("produce", "original", "--key-separator", ":", "--partition", "0", *options, text="a:1\nb:NULL\n")
    up.run("produce", "original", "--partition", "1", "--key", "ü", text="x")
    lines = up.run("consume", "original", "--json")
    up.run("produce", "copy", "--from-json", "--keep-partitions", text=lines)
    copied = up.run("consume", "copy", "--json").replace('"topic": "copy"', '"topic": "original"')
    assert sorted(copied.splitlines()) == sorted(lines.splitlines())
    assert [json.loads(line)["value"] for line in up.run("consume", "copy:0", "--json").splitlines()] == ["1", None]


def test_words_of_the_command_line_may_be_bytes_that_are_no_text(up: Command) -> None:
    up.run("topics", "create", "bytes", "--partitions", "1")
    key, header = os.fsdecode(b"\xff"), os.fsdecode(b"h=\xfe")
    up.run("produce", "bytes", "--key", key, "--header", header, text="found\n")
    up.run("produce", "bytes", "--key", "else", "--header", "h=1", text="not found\n")
    assert up.run("consume", "bytes", "--key", key, "--header", header, "--format", "%s") == "found"


@pytest.mark.parametrize(
    "verb",
    [
        ("topics", "describe"),
        ("topics", "create"),
        ("groups", "describe"),
        ("groups", "delete"),
        ("configs", "describe", "--topic"),
        ("consume",),
        ("produce",),
    ],
)
def test_a_name_that_is_not_utf_8_is_told_with_its_bytes(up: Command, verb: tuple[str, ...]) -> None:
    said = up.run(*verb, os.fsdecode(b"na\xffme"), text="1\n", code=2)
    assert said == "kraft: na\\xffme: not UTF-8, as all names in a cluster are\n"


def test_whole_files_are_records(up: Command, tmp_path: Path) -> None:
    up.run("topics", "create", "files", "--partitions", "1")
    (tmp_path / "a").write_text("one\ntwo")
    up.run("produce", "files", "--file", tmp_path / "a")
    assert up.run("consume", "files", "--format", "[%s]") == "[one\ntwo]"
    assert "No such file" in up.run("produce", "files", "--file", tmp_path / "b", code=2)


def test_client_settings_come_from_a_file_and_from_the_line(up: Command, tmp_path: Path) -> None:
    up.run("topics", "create", "set", "--partitions", "1")
    config = tmp_path / "client.properties"
    config.write_text(f"bootstrap.servers={up.json('status')['bootstrap']}\nlinger.ms=1\n")
    nowhere = Command(tmp_path / "other-state")
    assert "1 record sent" in nowhere.run("produce", "set", "--command-config", config, text="x\n")
    assert "did you mean" in up.run("produce", "set", "-X", "linger.mss=1", text="x\n", code=2)


def test_the_cluster_is_shown_in_one_view_and_its_log_directories(up: Command, home: Path) -> None:
    view = up.json("cluster")
    assert (view["active_brokers"], view["active_controller"], view["without_leader"]) == ([1, 2], 101, 0)
    assert "active brokers" in up.run("cluster")
    paths = [(row["broker"], row["path"]) for row in up.json("logdirs")]
    assert paths == [(node, str(home / "data" / str(node) / "data")) for node in (1, 2)]
    assert "FREE" in up.run("logdirs", "--broker", "1")


def test_the_replicas_of_one_topic_are_shown_alone_in_either_form(up: Command) -> None:
    up.run("topics", "create", "this", "that", "--partitions", "1")
    found = up.json("logdirs", "--topic", "this")
    assert {part["topic"] for row in found for part in row["replicas"]} == {"this"}
    assert "that" not in up.run("logdirs", "--topic", "this").split()


def test_the_replicas_of_a_topic_that_is_not_there_are_not_shown_as_none(up: Command) -> None:
    said = up.run("logdirs", "--topic", "typo", code=4)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in said
    assert "see kraft topics list" in said
    up.run("topics", "create", "on-one", "--replica-assignment", "1")
    assert "on-one" in up.run("logdirs", "--topic", "on-one", "--broker", "1")
    assert "on-one" not in up.run("logdirs", "--topic", "on-one", "--broker", "2")


def test_a_group_is_described_reset_and_deleted(up: Command, tmp_path: Path) -> None:
    up.run("topics", "create", "read", "--partitions", "2")
    up.run("produce", "read", "--partition", "0", text="1\n2\n3\n4\n")
    plan = tmp_path / "plan.csv"
    reset = ("groups", "reset-offsets", "readers", "--topic", "read")
    shown = up.json(*reset, "--to-earliest", "--export", plan)
    assert (shown["executed"], shown["changes"]) == (False, 2)
    assert plan.read_text() == "readers,read,0,0\nreaders,read,1,0\n"
    assert "--execute" in up.run(*reset, "--to-earliest")
    assert "readers" not in {row["group"] for row in up.json("groups", "list")}
    up.run(*reset, "--to-latest", "--execute")
    up.run("groups", "reset-offsets", "readers", "--all-topics", "--shift-by", "-3", "--execute")
    described = up.json("groups", "describe", "readers")
    assert (described["state"], described["lag"]) == ("Empty", 3)
    assert [(row["partition"], row["committed"], row["lag"]) for row in described["partitions"]] == [
        (0, 1, 3),
        (1, 0, 0),
    ]
    up.run("groups", "reset-offsets", "readers", "--from-file", plan, "--execute")
    assert "total lag 4" in up.run("groups", "describe", "readers")
    up.run("groups", "delete-offsets", "readers", "--topic", "read:1")
    assert len(up.json("groups", "describe", "readers")["partitions"]) == 1
    assert up.json("groups", "members", "readers") == []
    up.run("groups", "delete", "readers")
    assert "see kraft groups list" in up.run("groups", "describe", "readers", code=4)


def test_a_member_is_shown_with_its_partitions_and_can_be_removed(up: Command) -> None:
    up.run("topics", "create", "joined", "--partitions", "2")
    up.run("produce", "joined", text="1\n")
    settings = {"group.id": "team", "client.id": "me", "auto.offset.reset": "earliest"}
    member = Consumer({"bootstrap.servers": up.json("status")["bootstrap"], **settings})
    try:
        member.subscribe(["joined"])
        message = member.poll(30)
        assert message is not None
        assert message.value() == b"1"
        (row,) = up.json("groups", "members", "team")
        assert (row["client_id"], row["assignment"]) == ("me", ["joined-0", "joined-1"])
        assert "NON_EMPTY_GROUP" in up.run("groups", "delete", "team", code=1)
        refused = up.run("groups", "reset-offsets", "team", "--topic", "joined", "--to-earliest", "--execute", code=1)
        assert "has active members" in refused
        assert "has no such member" in up.run("groups", "remove-members", "team", "--member", "x", code=1)
        assert up.json("groups", "remove-members", "team", "--all")["removed"] == [row["member"]]
    finally:
        member.close()


def test_a_topic_that_is_not_there_is_not_one_in_which_a_group_has_nothing(up: Command) -> None:
    up.run("topics", "create", "heeded", "--partitions", "1")
    up.run("topics", "create", "unread", "--partitions", "1")
    up.run("groups", "reset-offsets", "reader", "--topic", "heeded", "--to-earliest", "--execute")
    for group in (("reader",), ()):
        said = up.run("groups", "describe", *group, "--topic", "nope", code=4)
        assert (
            said
            == "kraft: topic nope: unknown topic or partition (UNKNOWN_TOPIC_OR_PARTITION); see kraft topics list\n"
        )
    printed, told = up.both("groups", "describe", "reader", "--topic", "unread")
    assert (len(printed.splitlines()), told) == (1, "group reader does not read unread and has no offset there\n")
    printed, told = up.both("groups", "describe", "reader", "--topic", "heeded")
    assert (len(printed.splitlines()), told) == (3, "")


def test_an_empty_group_has_no_members_left_to_remove(up: Command) -> None:
    up.run("topics", "create", "empty", "--partitions", "1")
    up.run("groups", "reset-offsets", "deserted", "--topic", "empty", "--to-earliest", "--execute")
    assert up.run("groups", "remove-members", "deserted", "--all") == "0 members removed from group deserted\n"
    assert up.json("groups", "remove-members", "deserted", "--all")["removed"] == []
    assert "see kraft groups list" in up.run("groups", "remove-members", "nobody", "--all", code=4)
    assert "(members: none)" in up.run("groups", "remove-members", "deserted", "--member", "x", code=1)


def test_a_reader_of_the_output_that_reads_no_further_has_what_it_wanted(up: Command) -> None:
    up.run("topics", "create", "many", "--partitions", "1")
    up.run("produce", "many", text="".join(f"{number:0999}\n" for number in range(1_000)))
    for verb in (("consume", "many"), ("consume", "many", "--json")):
        with up.start(*verb) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() != ""
            reader.stdout.close()
            assert reader.wait(30) == 0
            assert reader.stderr is not None
            assert reader.stderr.read() == ""


def test_a_group_that_has_committed_nothing_is_not_said_to_lag_by_0(up: Command) -> None:
    up.run("topics", "create", "uncommitted", "--partitions", "1")
    up.run("produce", "uncommitted", text="1\n2\n")
    settings = {"group.id": "idle", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    member = Consumer({"bootstrap.servers": up.json("status")["bootstrap"], **settings})
    try:
        member.subscribe(["uncommitted"])
        assert member.poll(30) is not None
        described = up.json("groups", "describe", "idle")
        assert (described["lag"], [row["lag"] for row in described["partitions"]]) == (None, [None])
        assert "total lag -\n" in up.run("groups", "describe", "idle")
    finally:
        member.close()


def test_a_transactional_producer_is_told_at_once_that_there_are_no_transactions(up: Command) -> None:
    settings = {"bootstrap.servers": up.json("status")["bootstrap"], "transactional.id": "t", "log_level": 0}
    producer = Producer(settings)
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(60)
    (problem,) = refused.value.args
    assert problem.fatal()
    assert "this cluster has no transactions yet" in problem.str()


def test_metadata_is_browsed_as_it_was(up: Command, home: Path) -> None:
    folder = ("--folder", home / "data")
    up.run("topics", "create", "history", "--partitions", "1")
    up.run("topics", "delete", "history")
    events = [json.loads(line) for line in up.run("metadata", "events", *folder, "--json").splitlines()]
    created = next(row["offset"] for row in events if row["type"] == "Topic" and row["name"] == "history")
    removed = next(row["offset"] for row in events if row["type"] == "RemoveTopic" and row["offset"] > created)
    before, after = str(created), str(removed)
    assert "there is no history" in up.run("metadata", "show", "topics/history", *folder, code=4)
    shown = up.json("metadata", "show", "topics/history/partitions", *folder, "--at", after)
    assert list(shown) == ["0"]
    told = up.json("metadata", "diff", before, after, *folder)
    assert "topics/history" in [change["path"] for change in told["changes"]]
    assert "+ topics/history" in up.run("metadata", "diff", before, after, *folder)
    assert "RegisterBroker broker_id=1" in up.run("metadata", "events", *folder, "--to", before)


def test_the_cluster_itself_tells_the_same_history(up: Command, home: Path) -> None:
    up.run("topics", "create", "told", "--partitions", "1")
    from_cluster = up.json("metadata", "show", "topics/told")
    assert from_cluster == up.json("metadata", "show", "topics/told", "--folder", home / "data")
    offset = str(up.json("metadata", "show", "cluster")["offset"])
    up.run("topics", "delete", "told")
    assert [change["path"] for change in up.json("metadata", "diff", offset)["changes"]] == ["topics/told"]


def test_what_comes_is_shown_as_it_comes(up: Command) -> None:
    up.run("topics", "create", "live", "--partitions", "1")
    offset = str(up.json("metadata", "show", "cluster")["offset"])
    with up.watch("metadata", "events", "--from", offset, "--follow", "--json") as events:
        with up.watch("consume", "live", "--follow") as records:
            for number in range(2):
                up.run("produce", "live", text=f"{number}\n")
                assert records.readline() == f"{number}\n"
        up.run("topics", "delete", "live")
        while json.loads(events.readline())["type"] != "RemoveTopic":
            pass


def test_ctrl_c_ends_a_reader_without_a_word(up: Command) -> None:
    up.run("topics", "create", "endless", "--partitions", "1")
    up.run("produce", "endless", text="1\n")
    with up.start("consume", "endless", "--follow") as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "1\n"
        reader.send_signal(signal.SIGINT)
        _, said = reader.communicate(timeout=30)
        assert (reader.returncode, said) == (130, "")


def test_a_member_that_is_terminated_leaves_its_group(up: Command) -> None:
    up.run("topics", "create", "left", "--partitions", "1")
    up.run("produce", "left", text="1\n")
    with up.start("consume", "left", "--group", "leavers", "--follow") as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "1\n"
        reader.send_signal(signal.SIGTERM)
        _, said = reader.communicate(timeout=30)
        assert (reader.returncode, said) == (130, "")
    assert up.json("groups", "members", "leavers") == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_measurement_that_is_told_to_end_takes_its_topic_with_it(up: Command, number: signal.Signals) -> None:
    with up.start("perf", "produce", "-n", "100000000") as sender:
        while not (topics := up.json("topics", "list", "kraft-perf")):
            assert sender.poll() is None
        while not up.json("partitions", "list", topics[0]["topic"])[0]["end_offset"]:
            assert sender.poll() is None
        sender.send_signal(number)
        _, said = sender.communicate(timeout=30)
        assert (sender.returncode, said) == (130, "")
    assert up.json("topics", "list", "kraft-perf") == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_member_whose_pager_has_stopped_leaves_its_group_when_it_is_told_to_end(
    up: Command, number: signal.Signals
) -> None:
    topic, line = f"paged-{number:d}", "x" * 1_000 + "\n"
    up.run("topics", "create", topic, "--partitions", "1")
    up.run("produce", topic, text=line * 1_000)  # more than a pipe holds
    with up.start("consume", topic, "--group", topic) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == line
        reader.send_signal(number)
        assert reader.wait(30) == 130
        assert reader.stderr is not None
        assert reader.stderr.read() == ""
    assert up.json("groups", "members", topic) == []


def test_a_member_whose_pager_has_gone_leaves_its_group_without_a_word(up: Command) -> None:
    up.run("topics", "create", "quit", "--partitions", "1")
    up.run("produce", "quit", text="1\n")
    with up.start("consume", "quit", "--group", "quitters") as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "1\n"
        reader.stdout.close()
        up.run("produce", "quit", text="2\n")
        assert reader.wait(30) == 0
        assert reader.stderr is not None
        assert reader.stderr.read() == ""
    assert up.json("groups", "members", "quitters") == []


@pytest.mark.parametrize(
    "verb",
    [
        "topics describe",
        "configs describe --topic",
        "logdirs --topic",
        "groups describe --topic",
        "groups delete-offsets g --topic",
        "groups reset-offsets g --topic",
    ],
)
def test_names_are_completed_from_the_cluster(up: Command, verb: str) -> None:
    up.run("topics", "create", "complete-me", "--if-not-exists")
    line = f"kraft {verb} compl"
    asked = {"_KRAFT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    with up.watch(environment=asked) as offered:
        assert offered.read() == "complete-me\n"


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("logdirs --broker ", "1\n2\n"),
        ("unregister ", "1\n2\n"),
        ("configs describe --broker ", "all\n1\n2\n"),
        ("partitions reassign plan t --brokers 2,", "2,1\n"),
        ("quorum remove-controller ", "101\n"),
    ],
)
def test_nodes_are_completed_from_the_cluster(up: Command, line: str, offered: str) -> None:
    line = f"kraft {line}"
    asked = {"_KRAFT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    with up.watch(environment=asked) as answer:
        assert answer.read() == offered


def test_a_group_goes_on_where_it_stopped(up: Command) -> None:
    up.run("topics", "create", "shared", "--partitions", "1")
    up.run("produce", "shared", text="1\n2\n3\n")
    read = ("consume", "shared", "--group", "goers", "-n")
    assert up.run(*read, "2") == "1\n2\n"
    assert up.json("groups", "describe", "goers")["lag"] == 1
    assert up.run(*read, "1") == "3\n"
    assert "see kraft groups reset-offsets" in up.run(*read, "1", "--offset", "5", code=2)


def test_a_new_group_begins_where_a_setting_says_unless_the_command_line_does(up: Command) -> None:
    up.run("topics", "create", "begun", "--partitions", "1")
    up.run("produce", "begun", "--timestamp", "-2h", text="old\n")
    up.run("produce", "begun", text="new\n")
    recent = ("consume", "begun", "-n", "1", "-X", "auto.offset.reset=by_duration:PT1H", "--group")
    assert up.run(*recent, "recent") == "new\n"
    assert up.run(*recent, "all", "--offset", "earliest") == "old\n"
    assert "such as by_duration:PT1H30M" in up.run(*recent, "none", "-X", "auto.offset.reset=by_duration:1h", code=2)


def test_speed_is_measured_on_a_topic_that_goes_away_again(up: Command) -> None:
    for test in ("produce", "consume", "e2e"):
        measured = up.json("perf", test, "--records", "50", "--record-size", "10")
        assert measured["records"] == 50
        assert measured["records_per_second"] > 0
    assert up.json("topics", "list", "kraft-perf") == []
    up.run("topics", "create", "few", "--partitions", "1")
    up.run("produce", "few", text="1\n")
    assert "topic few has only 1 of 5 records" in up.run("perf", "consume", "few", "--records", "5", code=1)
    assert "records/s" in up.run("perf", "produce", "--records", "10")


def test_settings_are_shown_with_their_source_and_changed(up: Command) -> None:
    up.run("topics", "create", "settings")
    up.run("configs", "alter", "--topic", "settings", "--set", "retention.ms=5", "--append", "cleanup.policy=compact")
    shown = {row["key"]: row for row in up.json("configs", "describe", "--topic", "settings")}
    assert (shown["retention.ms"]["value"], shown["retention.ms"]["source"]) == ("5", "topic")
    assert shown["cleanup.policy"]["value"] == "delete,compact"
    up.run("configs", "alter", "--topic", "settings", "--delete", "retention.ms")
    again = {row["key"]: row for row in up.json("configs", "describe", "--topic", "settings", "--changed")}
    assert "retention.ms" not in again
    broker = {row["key"]: row["source"] for row in up.json("configs", "describe", "--broker", "1")}
    assert broker["num.partitions"] == "server.properties"
    wrong = ("configs", "alter", "--topic", "settings", "--set", "retention.ms=-7")
    assert "must be at least -1" in up.run(*wrong, code=1)
    for broker in ("9", "99999999999"):
        strange = ("configs", "alter", "--broker", broker, "--set", "log.cleaner.threads=2")
        expected = f"broker {broker}: node {broker} is not registered (BROKER_ID_NOT_REGISTERED); see kraft brokers"
        assert expected in up.run(*strange, code=4)


def test_brokers_and_quorum_are_shown(up: Command) -> None:
    assert [(row["broker"], row["state"]) for row in up.json("brokers")] == [(1, "active"), (2, "active")]
    quorum = up.json("quorum")
    assert quorum["leader"] == 101
    assert {row["node"]: row["role"] for row in quorum["replicas"]} == {101: "leader", 1: "observer", 2: "observer"}
    assert "HIGH" not in up.run("quorum")


def test_the_requests_that_a_broker_answers_are_shown(up: Command) -> None:
    rows = {row["api"]: row for row in up.json("apis", "--broker", "2")}
    assert (rows["Metadata"]["key"], rows["Metadata"]["min_version"]) == (3, 0)
    assert rows["Metadata"]["newest_common"] == rows["Metadata"]["max_version"]
    assert len(rows) > 20


def test_features_are_shown_and_changed_within_what_the_brokers_know(up: Command) -> None:
    (version,) = [row for row in up.json("features", "describe") if row["feature"] == "metadata.version"]
    same = f"metadata.version={version['level']}"
    assert "could be changed" in up.run("features", "upgrade", same, "--validate-only")
    assert "metadata.version" in up.run("features", "upgrade", f"metadata.version={version['max_level'] + 1}", code=1)
    assert "a level is a whole number" in up.run("features", "downgrade", "metadata.version=x", code=2)
    assert "give --yes" in up.run("unregister", "7", code=2)
    assert "broker 7" in up.run("unregister", "7", "--yes", code=4)


def test_an_active_broker_is_not_forgotten_by_mistake_and_one_that_was_stops_at_once(up: Command) -> None:
    said = up.run("unregister", "2", "--yes", code=1)
    assert "broker 2 is active" in said
    assert "kraft stop 2" in said
    up.run("unregister", "2", "--yes", "--force")
    deadline = time.monotonic() + 30
    while [row["broker"] for row in up.json("brokers")] != [1]:  # the one who answers hears of it a moment later
        assert time.monotonic() < deadline
    up.run("stop", "2")
    up.run("start", "2")
    assert [(row["broker"], row["state"]) for row in up.json("brokers")] == [(1, "active"), (2, "active")]


def test_what_was_sent_before_a_bad_line_is_told(up: Command) -> None:
    up.run("topics", "create", "lines", "--partitions", "1")
    said = up.run("produce", "lines", "--key-separator", ":", text="a:1\nb:2\nnone\nc:3\n", code=2)
    assert "line 3: no ':' between key and value: b'none'; 2 records sent to lines before it" in said
    assert up.run("consume", "lines") == "a\t1\nb\t2\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_a_sender_that_waits_for_lines_after_what_it_read(
    up: Command, number: signal.Signals
) -> None:
    topic = f"typed-{number:d}"
    up.run("topics", "create", topic, "--partitions", "1")
    with up.start("produce", topic) as sender, up.watch("consume", topic, "--follow") as records:
        assert sender.stdin is not None
        sender.stdin.write("1\n2\n")
        sender.stdin.flush()
        assert [records.readline() for _ in range(2)] == ["1\n", "2\n"]
        sender.send_signal(number)
        assert sender.wait(30) == 130  # though nobody has closed its input
        printed, said = sender.communicate()
        assert (printed, said) == (f"2 records sent to {topic}\n", "")


def test_all_clusters_that_were_started_are_listed(up: Command, home: Path) -> None:
    (row,) = up.json("status", "--all")
    assert (row["data"], row["up"]) == (str(home / "data"), True)


def test_a_node_is_killed_and_started(up: Command) -> None:
    assert up.json("kill", "2")["done"] == "killed"
    assert "does not run" in up.run("kill", "2", code=4)
    assert up.json("start", "2")["done"] == "started"
    assert "already runs" in up.run("start", "2", code=1)
    assert up.json("pause", "2")["pid"] == up.json("resume", "2")["pid"]


def test_logs_are_shown(up: Command) -> None:
    assert "the node starts" in up.run("logs", "1")
    lines = [json.loads(line) for line in up.run("logs", "--json").splitlines()]
    assert {line["node"] for line in lines} == {101, 1, 2}


def test_files_are_dumped_as_text_and_as_json(up: Command, home: Path) -> None:
    up.run("topics", "create", "dumped", "--partitions", "1", "--replication-factor", "2")
    up.run("produce", "dumped", text="hello\n")
    segment = home / "data" / "1" / "data" / "dumped-0" / "00000000000000000000.log"
    rows = [json.loads(line) for line in up.run("log", "dump", segment, "--json").splitlines()]
    assert [row["kind"] for row in rows] == ["batch", "record"]
    assert (rows[0]["crc_ok"], rows[1]["value"]) == (True, "hello")
    assert "value=hello" in up.run("log", "dump", segment)
    assert "value=hello" not in up.run("log", "dump", segment, "--batches-only")
    metadata = home / "data" / "101" / "data" / "__cluster_metadata-0"
    events = [json.loads(line) for line in up.run("log", "dump", metadata, "--json").splitlines()]
    assert any(row.get("type") == "Topic" and row["name"] == "dumped" for row in events)
    assert "meta.properties" not in up.run("log", "dump", home / "data" / "1" / "data" / "dumped-0")


def test_storage_says_whose_a_folder_is(up: Command, home: Path) -> None:
    config = home / "data" / "1" / "server.properties"
    (row,) = up.json("storage", "info", "--config", config)
    assert (row["state"], row["node_id"]) == ("formatted", 1)
    assert "formatted already" in up.run("storage", "format", "--config", config, code=1)
    assert up.json("storage", "format", "--config", config, "--cluster-id", row["cluster_id"], "--ignore-formatted")


def test_a_second_start_on_one_folder_says_what_to_do(up: Command, home: Path) -> None:
    assert "kraft status" in up.spawn("up", "--data", home / "data", "--background", code=1)
    said = up.run("up", "--data", home / "data", "--brokers", "7", code=2)
    assert "has brokers=2, not 7" in said


def test_storage_is_formatted_once(kraft: Command, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        "process.roles=controller\nnode.id=1\nlisteners=CONTROLLER://127.0.0.1:9193\n"
        f"controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:9193\nlog.dirs={tmp_path}/data\n"
    )
    kraft.run("storage", "info", "--config", config, "--json", code=4)
    formatted = kraft.json("storage", "format", "--config", config)
    assert formatted["formatted"] == [f"{tmp_path}/data"]
    assert "expected 22 characters" in kraft.run("storage", "format", "--config", config, "--cluster-id", "x", code=2)


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("status",), 4, "start one with kraft up"),
        (("status", "--data", "/nowhere"), 4, "/nowhere holds no kraft cluster"),
        (("kill", "1"), 4, "start one with kraft up"),
        (("up", "--external", "foo"), 2, "expected HOST:PORT"),
        (("up", "--port", "65500"), 2, "choose a lower one"),
        (("topics", "list", "("), 2, "not a regular expression"),
        (("topics", "create", "t", "--replica-assignment", "1:x"), 2, "expected broker ids"),
        (("groups", "reset-offsets", "g", "--to-latest"), 2, "which topics?"),
        (("groups", "reset-offsets", "g", "--topic", "t"), 2, "where to?"),
        (("groups", "remove-members", "g"), 2, "whom?"),
        (("consume", "t", "--follow", "--until", "now"), 2, "--follow has no end"),
        (("consume", "t:1", "--partition", "1"), 2, "either with --partition or as"),
        (("produce", "t", "--key-separator", ""), 2, "--key-separator is empty"),
        (("produce", "t", "-X", "security.protocol=SASL_SSL"), 2, "SASL not yet"),
        (("quorum", "add-controller", TWO_CONTROLLERS, "-b", NOWHERE), 2, "one controller at a time, not 2: 1, 2"),
        (("quorum", "add-controller", ",", "-b", NOWHERE), 2, "one controller at a time, not 0"),
        (("kill", "one"), 2, "NODE"),
        (("nothing",), 2, "nothing"),
        (("topics", "list", "--bootstrap", "nowhere"), 2, "is not HOST:PORT"),
        (("up", "--set", "num.partition=1"), 2, "did you mean num.partitions?"),
        (("up", "--set", "num.partitions"), 2, "expected KEY=VALUE"),
        (("up", "--set", "num.partitions=none"), 2, "is not a whole number"),
        (("up", "--combined", "1", "--brokers", "2"), 2, "--combined stands for itself"),
        (("up", "--profile", "prod"), 2, "expected dev or kafka"),
        (("node", "--config", "/nowhere/server.properties"), 2, "cannot read"),
        (("log", "dump", "/nowhere"), 4, "there is no /nowhere"),
        (("configs", "describe"), 2, "give either --topic TOPIC, --broker ID or --group GROUP"),
        (("configs", "describe", "--broker", "x"), 2, "expected a broker id"),
        (("configs", "alter", "--topic", "t"), 2, "nothing to change"),
        (("groups", "list", "--state", "foo"), 2, "expected one of PreparingRebalance, "),
        (("groups", "list", "--type", "foo"), 2, "expected one of classic, "),
        (("node", "--config", "x", "--log-level", "loud"), 2, "expected one of debug"),
        (("configs", "alter", "--topic", "t", "--delete", "retention.mss"), 2, "did you mean retention.ms?"),
        (("consume", "t", "--since", "2026"), 2, "write 2026-01-01"),
        (("consume", "t", "-b", ""), 2, "--bootstrap-server is empty"),
        (("topic", "list", "("), 2, "not a regular expression"),
        (("produce", "t", "--timeout", "-1"), 2, "--timeout"),
        (("consume", "t", "--offset", "soon"), 2, "expected earliest, latest or a number"),
        (("consume", "t", "--offset", "5:3"), 2, "must be more than 5"),
        (("consume", "t", "--offset", "5:5"), 2, "must be more than 5"),
        (("consume", "t", "--offset", ":0"), 2, "must be more than 0"),
        (("consume", "t", "--since", "now", "--until", "-1h"), 2, "--until must be later than --since"),
    ],
)
def test_what_cannot_be_done_says_why(kraft: Command, arguments: tuple[str, ...], code: int, expected: str) -> None:
    assert expected in kraft.run(*arguments, code=code)


def test_the_command_as_a_process_says_the_same(kraft: Command) -> None:
    assert "start one with kraft up" in kraft.spawn("status", code=4)
    assert "Start a cluster on this machine" in kraft.spawn("--help")


def test_a_file_of_an_unknown_kind_is_refused(kraft: Command, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    assert "not a file that kraft writes" in kraft.run("log", "dump", tmp_path / "thesis.tex", code=2)


def test_a_setting_without_effect_is_told_as_one(kraft: Command, tmp_path: Path) -> None:
    said = kraft.run("up", "--set", "background.threads=5", "--profile", "prod", "--data", tmp_path / "data", code=2)
    assert "background.threads has no effect: " in said


def test_help_has_a_short_name(kraft: Command) -> None:
    assert kraft.run("-h") == kraft.run("--help")
    assert kraft.run("topics", "list", "-h") == kraft.run("topics", "list", "--help")


def test_a_cluster_that_is_not_there_gives_its_own_exit_code_after_the_time_that_was_given(kraft: Command) -> None:
    assert "no broker answered within 300 ms" in kraft.run("topics", "list", "-b", NOWHERE, "--timeout", "0.3", code=3)


def test_the_readmes_way_to_one_node_works_with_what_kafkas_own_file_says(kraft: Command, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.bootstrap.servers=localhost:9093\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ninter.broker.listener.name=PLAINTEXT\n"
        "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
        "controller.listener.names=CONTROLLER\nlistener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
        f"num.network.threads=3\nlog.dirs={tmp_path}/data\n"
    )
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text()
    (line,) = [line.split("$ kraft ")[1] for line in readme.splitlines() if "$ kraft storage format" in line]
    words = [str(config) if word == "server.properties" else word for word in line.split()]
    assert f"formatted {tmp_path}/data for node 1" in kraft.run(*words)
