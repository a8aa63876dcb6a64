"""The kraft command as a user runs it: records, their consumers and producers, and groups."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from tests.stages.kraft_command import Command


def test_kraft_produce_and_consume_pass_records_through(up: Command) -> None:
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
    printed, said = up.both("consume", "records", "--since", "2999-01-01")
    assert (printed, "--since 2999-01-01 is in the future" in said) == ("", True)
    assert up.both("consume", "records", "--since", "-1m", "-n", "1") == ("a\t1\n", "")


def test_records_are_copied_as_json_lines_with_all_their_fields(up: Command) -> None:
    up.run("topics", "create", "original", "copy", "--partitions", "2")
    options = ("--header", "h=1", "--timestamp", "7000", "--null", "NULL", "--compression", "lz4")
    up.run("produce", "original", "--key-separator", ":", "--partition", "0", *options, text="a:1\nb:NULL\n")
    up.run("produce", "original", "--partition", "1", "--key", "ü", text="x")
    lines = up.run("consume", "original", "--json")
    up.run("produce", "copy", "--from-json", "--keep-partitions", text=lines)
    copied = up.run("consume", "copy", "--json").replace('"topic": "copy"', '"topic": "original"')
    assert sorted(copied.splitlines()) == sorted(lines.splitlines())
    assert [json.loads(line)["value"] for line in up.run("consume", "copy:0", "--json").splitlines()] == ["1", None]


def test_keys_and_headers_on_the_command_line_may_be_non_utf_8_bytes(up: Command) -> None:
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
def test_a_name_that_is_not_utf_8_is_refused_with_its_bytes_escaped(up: Command, verb: tuple[str, ...]) -> None:
    said = up.run(*verb, os.fsdecode(b"na\xffme"), text="1\n", code=2)
    assert said == "kraft: na\\xffme: not UTF-8, but names in a cluster must be\n"


def test_kraft_produce_sends_whole_files_as_records(up: Command, tmp_path: Path) -> None:
    up.run("topics", "create", "files", "--partitions", "1")
    (tmp_path / "a").write_text("one\ntwo")
    up.run("produce", "files", "--file", tmp_path / "a")
    assert up.run("consume", "files", "--format", "[%s]") == "[one\ntwo]"
    assert "No such file" in up.run("produce", "files", "--file", tmp_path / "b", code=2)


def test_client_settings_come_from_a_file_and_from_the_command_line(up: Command, tmp_path: Path) -> None:
    up.run("topics", "create", "set", "--partitions", "1")
    config = tmp_path / "client.properties"
    config.write_text(f"bootstrap.servers={up.json('status')['bootstrap']}\nlinger.ms=1\n")
    nowhere = Command(tmp_path / "other-state")
    assert "1 record sent" in nowhere.run("produce", "set", "--command-config", config, text="x\n")
    assert "did you mean" in up.run("produce", "set", "-X", "linger.mss=1", text="x\n", code=2)


def test_kraft_groups_describes_resets_and_deletes_a_group(up: Command, tmp_path: Path) -> None:
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
    assert up.json("groups", "delete-offsets", "readers", "--topic", "read:1") == [{"topic": "read", "partition": 1}]
    told = up.run("groups", "delete-offsets", "readers", "--topic", "read:1", code=4)
    assert "group readers has no committed offsets of read:1" in told
    assert len(up.json("groups", "describe", "readers")["partitions"]) == 1
    assert up.json("groups", "members", "readers") == []
    up.run("groups", "delete", "readers")
    assert "see kraft groups list" in up.run("groups", "describe", "readers", code=4)


def test_kraft_groups_shows_a_member_with_its_partitions_and_removes_it(up: Command) -> None:
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


def test_removing_all_members_of_an_empty_group_succeeds(up: Command) -> None:
    up.run("topics", "create", "empty", "--partitions", "1")
    up.run("groups", "reset-offsets", "deserted", "--topic", "empty", "--to-earliest", "--execute")
    assert up.run("groups", "remove-members", "deserted", "--all") == "0 members removed from group deserted\n"
    assert up.json("groups", "remove-members", "deserted", "--all")["removed"] == []
    assert "see kraft groups list" in up.run("groups", "remove-members", "nobody", "--all", code=4)
    assert "(members: none)" in up.run("groups", "remove-members", "deserted", "--member", "x", code=1)


def test_an_offset_reset_of_all_groups_is_only_shown_without_execute_and_carried_out_with_execute(up: Command) -> None:
    up.run("topics", "create", "everybodys", "--partitions", "1")
    up.run("produce", "everybodys", text="1\n2\n")
    for group in ("all-1", "all-2"):
        up.run("groups", "reset-offsets", group, "--topic", "everybodys", "--to-latest", "--execute")
    told = up.json("groups", "reset-offsets", "--all-groups", "--topic", "everybodys", "--to-earliest")
    assert told["executed"] is False
    rows = {row["group"]: (row["before"], row["after"]) for row in told["partitions"]}
    assert (rows["all-1"], rows["all-2"]) == ((2, 0), (2, 0))
    assert up.json("groups", "describe", "all-1")["lag"] == 0


def test_describing_several_groups_shows_the_others_if_one_is_missing(up: Command) -> None:
    up.run("topics", "create", "halfway", "--partitions", "1")
    for group in ("first", "second"):
        up.run("groups", "reset-offsets", group, "--topic", "halfway", "--to-earliest", "--execute")
    names = ("first", "nobody", "second")
    shown = up.printed("groups", "describe", *names, code=4)
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("group ")] == ["first", "second"]
    assert "\n\ngroup second" in shown
    told = json.loads(up.printed("groups", "describe", *names, "--json", code=4))
    assert [(row["group_id"], "error" in row) for row in told] == [
        ("first", False),
        ("nobody", True),
        ("second", False),
    ]
    assert up.json("groups", "describe", "first")["group_id"] == "first"
    assert {"first", "second"} <= {row["group_id"] for row in up.json("groups", "describe")}


def test_describing_groups_for_a_missing_topic_is_an_error(up: Command) -> None:
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


def test_a_group_without_commits_is_not_reported_with_lag_0(up: Command) -> None:
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


def test_a_transactional_producer_of_librdkafka_is_fenced_by_the_next_producer_with_its_id(up: Command) -> None:
    up.run("topics", "create", "fenced", "--partitions", "1")
    settings = {"bootstrap.servers": up.json("status")["bootstrap"], "transactional.id": "t", "log_level": 0}
    first = Producer(settings)
    first.init_transactions(60)
    Producer(settings).init_transactions(60)
    first.begin_transaction()
    first.produce("fenced", "v")
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(30)
    (problem,) = refused.value.args
    assert problem.code() == KafkaError._FENCED


def test_ctrl_c_ends_kraft_consume_without_a_message(up: Command) -> None:
    up.run("topics", "create", "endless", "--partitions", "1")
    up.run("produce", "endless", text="1\n")
    with up.start("consume", "endless", "--follow") as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "1\n"
        reader.send_signal(signal.SIGINT)
        _, said = reader.communicate(timeout=30)
        assert (reader.returncode, said) == (130, "")


def test_a_group_member_leaves_its_group_on_sigterm(up: Command) -> None:
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
def test_kraft_perf_deletes_its_topic_when_it_is_terminated(up: Command, number: signal.Signals) -> None:
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
def test_a_group_member_with_a_blocked_pager_leaves_its_group_on_sigterm(up: Command, number: signal.Signals) -> None:
    topic, line = f"paged-{number:d}", "x" * 1_000 + "\n"
    up.run("topics", "create", topic, "--partitions", "1")
    up.run("produce", topic, text=line * 1_000)  # more than a pipe can hold
    with up.start("consume", topic, "--group", topic) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == line
        reader.send_signal(number)
        assert reader.wait(30) == 130
        assert reader.stderr is not None
        assert reader.stderr.read() == ""
    assert up.json("groups", "members", topic) == []


def test_a_group_member_whose_pager_has_ended_leaves_its_group_silently(up: Command) -> None:
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


def test_kraft_consume_ends_with_success_when_the_reader_of_its_output_ends(up: Command) -> None:
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


def test_kraft_consume_as_a_group_member_continues_at_the_committed_offsets(up: Command) -> None:
    up.run("topics", "create", "shared", "--partitions", "1")
    up.run("produce", "shared", text="1\n2\n3\n")
    read = ("consume", "shared", "--group", "goers", "-n")
    assert up.run(*read, "2") == "1\n2\n"
    assert up.json("groups", "describe", "goers")["lag"] == 1
    assert up.run(*read, "1") == "3\n"
    assert "see kraft groups reset-offsets" in up.run(*read, "1", "--offset", "5", code=2)


def test_kraft_consume_joins_a_consumer_group_with_group_protocol_consumer(up: Command) -> None:
    up.run("topics", "create", "assigned", "--partitions", "1")
    up.run("produce", "assigned", text="1\n2\n3\n")
    read = ("consume", "assigned", "--group", "nexts", "--group-protocol", "consumer", "-n")
    assert up.run(*read, "2") == "1\n2\n"
    assert {row["group"]: row["type"] for row in up.json("groups", "list")}["nexts"] == "Consumer"
    assert up.run(*read, "1") == "3\n"


def test_kraft_consume_in_a_new_group_starts_at_auto_offset_reset_unless_offset_is_given(up: Command) -> None:
    up.run("topics", "create", "begun", "--partitions", "1")
    up.run("produce", "begun", "--timestamp", "-2h", text="old\n")
    up.run("produce", "begun", text="new\n")
    recent = ("consume", "begun", "-n", "1", "-X", "auto.offset.reset=by_duration:PT1H", "--group")
    assert up.run(*recent, "recent") == "new\n"
    assert up.run(*recent, "all", "--offset", "earliest") == "old\n"
    assert "such as by_duration:PT1H30M" in up.run(*recent, "none", "-X", "auto.offset.reset=by_duration:1h", code=2)


def test_kraft_produce_reports_a_topic_that_the_brokers_created(up: Command) -> None:
    assert up.run("produce", "mistyped", text="x\n").startswith("1 record sent to mistyped (topic created")
    assert up.run("produce", "mistyped", text="x\n") == "1 record sent to mistyped\n"
    assert up.run("produce", "never", text="") == "0 records sent to never\n"


def test_kraft_produce_reports_the_number_of_records_sent_before_an_invalid_line(up: Command) -> None:
    up.run("topics", "create", "lines", "--partitions", "1")
    said = up.run("produce", "lines", "--key-separator", ":", text="a:1\nb:2\nnone\nc:3\n", code=2)
    assert "line 3: no ':' between key and value: b'none'; 2 records sent to lines before it" in said
    assert up.run("consume", "lines") == "a\t1\nb\t2\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_produce_delivers_the_lines_already_read(up: Command, number: signal.Signals) -> None:
    topic = f"typed-{number:d}"
    up.run("topics", "create", topic, "--partitions", "1")
    with up.start("produce", topic) as sender, up.watch("consume", topic, "--follow") as records:
        assert sender.stdin is not None
        sender.stdin.write("1\n2\n")
        sender.stdin.flush()
        assert [records.readline() for _ in range(2)] == ["1\n", "2\n"]
        sender.send_signal(number)
        assert sender.wait(30) == 130  # although its input is still open
        printed, said = sender.communicate()
        assert (printed, said) == (f"2 records sent to {topic}\n", "")
