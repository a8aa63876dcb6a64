"""The kraft command as a user runs it: topics, partitions, settings, brokers and metadata."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stages.kraft_command import Command


def test_kraft_topics_creates_describes_extends_and_deletes_a_topic(up: Command) -> None:
    created = up.json("topics", "create", "life", "--replication-factor", "2", "--config", "retention.ms=1000")
    assert created == {"topic": "life", "created": True, "partitions": 2, "replication_factor": 2}
    described = up.json("topics", "describe", "life")
    assert described["settings"] == {"retention.ms": "1000"}
    assert [sorted(part["replicas"]) for part in described["partitions"]] == [[1, 2], [1, 2]]
    shape = ("--partitions", "1", "--replication-factor", "1", "--validate-only")
    assert up.run("topics", "create", "single", *shape) == "topic single could be created: 1 partition, 1 replica\n"
    up.run("topics", "alter", "life", "--partitions", "3")
    assert ["life", 3] in [[row["topic"], row["partitions"]] for row in up.json("topics", "list")]
    assert "LEADER" in up.run("topics", "describe", "life")
    up.run("topics", "delete", "life")
    assert "was not there" in up.run("topics", "delete", "life", "--if-exists")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in up.run("topics", "describe", "life", code=4)


def test_a_command_on_several_names_reports_each_of_them_if_one_fails(up: Command) -> None:
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


def test_creating_an_existing_topic_is_refused(up: Command) -> None:
    up.run("topics", "create", "twice")
    said = up.run("topics", "create", "twice", code=1)
    assert "TOPIC_ALREADY_EXISTS" in said
    assert "--if-not-exists" in said
    assert "is there already" in up.run("topics", "create", "twice", "--if-not-exists")


def test_json_output_distinguishes_changes_that_were_only_validated_from_changes_that_were_made(up: Command) -> None:
    assert up.json("topics", "create", "perhaps", "--validate-only")["created"] is False
    assert up.json("topics", "list", "perhaps") == []
    assert up.json("topics", "create", "perhaps")["created"] is True
    assert up.json("topics", "create", "perhaps", "--if-not-exists")["created"] is False
    change = ("configs", "alter", "--topic", "perhaps", "--set", "retention.ms=5")
    assert up.json(*change, "--validate-only") == {"changed": [], "could_be_changed": ["retention.ms"]}
    assert up.json("topics", "describe", "perhaps")["settings"] == {}
    assert up.json(*change) == {"changed": ["retention.ms"]}


def test_kraft_partitions_list_shows_the_offsets_of_chosen_partitions(up: Command) -> None:
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


def test_kraft_partitions_delete_records_deletes_from_all_named_partitions_or_from_none(up: Command) -> None:
    up.run("topics", "create", "uneven", "--partitions", "2")
    up.run("produce", "uneven", "--partition", "0", text="a\nb\nc\n")
    up.run("produce", "uneven", "--partition", "1", text="a\n")
    for before in ("3", "99999999999999999999"):
        said = up.run("partitions", "delete-records", "uneven", "--before", before, "--yes", code=4)
        assert "nothing was deleted" in said
    assert "uneven-1 ends at 1" in up.run("partitions", "delete-records", "uneven", "--before", "3", "--yes", code=4)
    assert [row["first_offset"] for row in up.json("partitions", "list", "uneven")] == [0, 0]


def test_kraft_topics_describe_finds_partitions_under_or_at_min_isr(up: Command) -> None:
    for name, replicas, least in (("under", "1", 2), ("at", "1:2", 2), ("over", "1:2", 1)):
        up.run("topics", "create", name, "--replica-assignment", replicas, "--config", f"min.insync.replicas={least}")
    for name in ("under", "at"):
        found = {row["topic"] for row in up.json("topics", "describe", f"--{name}-min-isr")}
        assert found & {"under", "at", "over"} == {name}
        for other in {"under", "at", "over"} - {name}:
            assert up.json("topics", "describe", other, f"--{name}-min-isr") == []
    assert up.json("topics", "describe", "at", "--at-min-isr", "--unavailable") == []
    assert "no partition is both" in up.run("topics", "describe", "--at-min-isr", "--under-min-isr", code=2)


@pytest.fixture
def one_broker_short(up: Command) -> Iterator[Command]:
    """A cluster while broker 2 is down: topic `halved` has lost a replica, and partition 1 of topic `torn` has lost its
    leader."""
    up.run("topics", "create", "halved", "--replica-assignment", "1:2", "--config", "min.insync.replicas=2")
    up.run("topics", "create", "torn", "--replica-assignment", "1,2")
    up.run("produce", "torn", "--partition", "0", text="a\nb\n")
    up.run("stop", "2")
    up.json_when(lambda told: told["partitions"][0]["isr"] == [1], "topics", "describe", "halved")
    up.json_when(lambda told: told["partitions"][1]["leader"] is None, "topics", "describe", "torn")
    yield up
    up.run("start", "2")
    up.json_when(are_active, "brokers")
    up.run("topics", "delete", "halved", "torn")


def are_active(brokers: list[dict[str, Any]]) -> bool:
    return [(row["broker"], row["state"]) for row in brokers] == [(1, "active"), (2, "active")]


def test_commands_show_the_partitions_affected_by_a_down_broker(one_broker_short: Command) -> None:
    kraft = one_broker_short
    (part,) = kraft.json("topics", "describe", "halved")["partitions"]
    assert (part["isr"], part["elr"], part["last_known_elr"]) == ([1], [2], [])
    (row,) = kraft.json("topics", "describe", "halved", "--under-min-isr")
    assert (row["topic"], row["elr"], row["last_known_elr"]) == ("halved", [2], [])
    assert "ISR  ELR  LAST KNOWN ELR" in kraft.run("topics", "describe", "halved")

    offsets = ("partitions", "offsets", "torn")
    said = "torn-1 has no leader now (LEADER_NOT_AVAILABLE); see kraft topics describe --unavailable"
    assert kraft.run(*offsets, code=1) == f"kraft: {said}\n"
    assert [line.split()[:3] for line in kraft.printed(*offsets, code=1).splitlines()[1:]] == [
        ["torn", "0", "2"],
        ["torn", "1", "-"],
    ]
    there, lost = json.loads(kraft.printed(*offsets, "--json", code=1))
    assert (there["offset"], "error" in there) == (2, False)
    assert (lost["offset"], lost["error"]) == (None, said)
    assert [row["offset"] for row in kraft.json("partitions", "offsets", "torn:0")] == [2]
    rows = kraft.json("partitions", "list", "torn")
    assert [(row["leader"], row["first_offset"], row["end_offset"], row["offsets"]) for row in rows] == [
        (1, 0, 2, 2),
        (None, None, None, None),
    ]


def test_kraft_partitions_reassign_execute_moves_replicas_as_planned(up: Command, tmp_path: Path) -> None:
    up.run("topics", "create", "movable", "--replica-assignment", "1,1,1,1")
    up.run("produce", "movable", text="a\nb\n")
    back, there = tmp_path / "back.json", tmp_path / "there.json"
    there.write_text(up.run("partitions", "reassign", "plan", "movable", "--save-current", back))
    up.run("partitions", "reassign", "verify", there, code=1)
    begun = up.json("partitions", "reassign", "execute", there, "--throttle", "10000000", "--wait")
    assert sorted(row["target"] for row in begun) == [[1], [1], [2], [2]]
    assert {row["state"] for row in up.json("partitions", "reassign", "verify", there)} == {"done"}
    assert up.json("partitions", "reassign", "list") == []
    up.json_when(lambda told: told["settings"] == {}, "topics", "describe", "movable")
    assert sorted(up.run("consume", "movable").split()) == ["a", "b"]
    assert "nothing to do" in up.run("partitions", "reassign", "cancel", there)
    up.run("partitions", "reassign", "execute", back, "--wait")
    up.json_when(
        lambda told: {tuple(part["replicas"]) for part in told["partitions"]} == {(1,)}, "topics", "describe", "movable"
    )


def test_reassign_execute_waits_for_the_accepted_moves_if_another_move_is_refused(up: Command, tmp_path: Path) -> None:
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
    up.json_when(lambda told: told["settings"] == {}, "topics", "describe", "half")
    assert json.loads(up.printed(*execute, code=1))[0]["result"] == "begun"
    up.run("partitions", "reassign", "verify", plan, code=1)


def test_kraft_cluster_shows_all_nodes_in_one_view_and_logdirs_shows_log_directories(up: Command, home: Path) -> None:
    view = up.json_when(lambda told: told["active_brokers"] == [1, 2] and told["without_leader"] == 0, "cluster")
    assert view["active_controller"] == 101
    assert "active brokers" in up.run("cluster")
    paths = [(row["broker"], row["path"]) for row in up.json("logdirs")]
    assert paths == [(node, str(home / "data" / str(node) / "data")) for node in (1, 2)]
    assert "FREE" in up.run("logdirs", "--broker", "1")


def test_kraft_logdirs_shows_only_the_replicas_of_one_topic_as_table_and_json(up: Command) -> None:
    up.run("topics", "create", "this", "that", "--partitions", "1")
    found = up.json("logdirs", "--topic", "this")
    assert {part["topic"] for row in found for part in row["replicas"]} == {"this"}
    assert "that" not in up.run("logdirs", "--topic", "this").split()


def test_kraft_logdirs_of_a_missing_topic_is_an_error(up: Command) -> None:
    said = up.run("logdirs", "--topic", "typo", code=4)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in said
    assert "see kraft topics list" in said
    up.run("topics", "create", "on-one", "--replica-assignment", "1")
    assert "on-one" in up.run("logdirs", "--topic", "on-one", "--broker", "1")
    assert "on-one" not in up.run("logdirs", "--topic", "on-one", "--broker", "2")


def test_kraft_metadata_show_prints_past_states_of_the_metadata(up: Command, home: Path) -> None:
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


def test_kraft_metadata_show_prints_the_same_from_the_cluster_and_from_a_nodes_folder(up: Command, home: Path) -> None:
    up.run("topics", "create", "told", "--partitions", "1")
    from_cluster = up.json("metadata", "show", "topics/told")
    assert from_cluster == up.json("metadata", "show", "topics/told", "--folder", home / "data")
    offset = str(up.json("metadata", "show", "cluster")["offset"])
    up.run("topics", "delete", "told")
    assert [change["path"] for change in up.json("metadata", "diff", offset)["changes"]] == ["topics/told"]


def test_kraft_metadata_events_with_follow_prints_new_events(up: Command) -> None:
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


def test_kraft_perf_deletes_the_topic_that_it_created(up: Command) -> None:
    for test in ("produce", "consume", "e2e"):
        measured = up.json("perf", test, "--records", "50", "--record-size", "10")
        assert measured["records"] == 50
        assert measured["records_per_second"] > 0
    assert up.json("topics", "list", "kraft-perf") == []
    up.run("topics", "create", "few", "--partitions", "1")
    up.run("produce", "few", text="1\n")
    assert "topic few has only 1 of 5 records" in up.run("perf", "consume", "few", "--records", "5", code=1)
    assert "records/s" in up.run("perf", "produce", "--records", "10")


def by_key(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["key"]: row for row in rows}


def settings_when(up: Command, is_due: Callable[[dict[str, Any]], bool], *options: str) -> dict[str, Any]:
    """Wait until the topic's settings satisfy a condition, and return them."""
    describe = ("configs", "describe", "--topic", "settings", *options)
    return by_key(up.json_when(lambda rows: is_due(by_key(rows)), *describe))


def test_kraft_configs_shows_settings_with_their_source_and_changes_them(up: Command) -> None:
    up.run("topics", "create", "settings")
    up.run("configs", "alter", "--topic", "settings", "--set", "retention.ms=5", "--append", "cleanup.policy=compact")
    shown = settings_when(up, lambda shown: shown["retention.ms"]["value"] == "5")
    assert (shown["retention.ms"]["value"], shown["retention.ms"]["source"]) == ("5", "topic")
    assert shown["cleanup.policy"]["value"] == "delete,compact"
    up.run("configs", "alter", "--topic", "settings", "--delete", "retention.ms")
    again = settings_when(up, lambda shown: "retention.ms" not in shown, "--changed")
    assert "cleanup.policy" in again
    broker = {row["key"]: row["source"] for row in up.json("configs", "describe", "--broker", "1")}
    assert broker["num.partitions"] == "server.properties"
    wrong = ("configs", "alter", "--topic", "settings", "--set", "retention.ms=-7")
    assert "must be at least -1" in up.run(*wrong, code=1)
    for broker in ("9", "99999999999"):
        strange = ("configs", "alter", "--broker", broker, "--set", "log.cleaner.threads=2")
        expected = f"broker {broker}: No node with id {broker} found. (INVALID_REQUEST)"
        assert expected in up.run(*strange, code=1)


def test_kraft_brokers_and_kraft_quorum_show_the_active_nodes_and_their_roles(up: Command) -> None:
    up.json_when(are_active, "brokers")
    quorum = up.json("quorum")
    assert quorum["leader"] == 101
    assert {row["node"]: row["role"] for row in quorum["replicas"]} == {101: "leader", 1: "observer", 2: "observer"}
    assert "HIGH" not in up.run("quorum")


def test_kraft_quorum_describe_prints_the_same_as_kraft_quorum(up: Command) -> None:
    described, shown = up.json("quorum", "describe"), up.json("quorum")
    assert described.keys() == shown.keys()
    assert {row["node"]: row["role"] for row in described["replicas"]} == {
        row["node"]: row["role"] for row in shown["replicas"]
    }
    assert up.run("quorum", "describe").startswith("leader 101  epoch ")


def test_kraft_apis_shows_the_requests_that_a_broker_supports(up: Command) -> None:
    rows = {row["api"]: row for row in up.json("apis", "--broker", "2")}
    assert (rows["Metadata"]["key"], rows["Metadata"]["min_version"]) == (3, 0)
    assert rows["Metadata"]["newest_common"] == rows["Metadata"]["max_version"]
    assert len(rows) > 20


def test_kraft_features_shows_levels_and_changes_them_within_the_supported_range(up: Command) -> None:
    (version,) = [row for row in up.json("features", "describe") if row["feature"] == "metadata.version"]
    same = f"metadata.version={version['level']}"
    assert "could be changed" in up.run("features", "upgrade", same, "--validate-only")
    assert "metadata.version" in up.run("features", "upgrade", f"metadata.version={version['max_level'] + 1}", code=1)
    assert "a level is a whole number" in up.run("features", "downgrade", "metadata.version=x", code=2)
    assert "give --yes" in up.run("unregister", "7", code=2)
    assert "broker 7" in up.run("unregister", "7", "--yes", code=4)


def test_unregistering_an_active_broker_needs_force_and_stops_it(up: Command) -> None:
    said = up.run("unregister", "2", "--yes", code=1)
    assert "broker 2 is active" in said
    assert "kraft stop 2" in said
    up.run("unregister", "2", "--yes", "--force")
    up.json_when(lambda brokers: [row["broker"] for row in brokers] == [1], "brokers")
    up.run("stop", "2")
    up.run("start", "2")
    up.json_when(are_active, "brokers")
