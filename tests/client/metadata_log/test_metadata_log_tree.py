"""Cluster metadata as a tree: find a value, compare two trees, print a tree."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraft.client.metadata_log.tree import Change, PathNotFound, differences, find, render, render_change, tree_of
from kraft.image import ConfigResourceType, Event, MetadataImage, PartitionState, events, replay

TOPIC_ID = UUID(int=77)


def image(*applied: Event) -> MetadataImage:
    return replay(MetadataImage(), applied, len(applied), 1)


ORDERS = (
    events.Topic(name="orders", topic_id=TOPIC_ID),
    events.Partition(
        partition_id=0,
        topic_id=TOPIC_ID,
        replicas=(1, 2),
        isr=(1, 2),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
    ),
)


def config(name: str, value: str, resource: str = "orders") -> Event:
    return events.Config(resource_type=ConfigResourceType.TOPIC, resource_name=resource, name=name, value=value)


def test_find_returns_the_value_at_a_path_of_the_metadata_tree() -> None:
    tree = tree_of(image(*ORDERS, config("retention.ms", "5")))
    assert find(tree, "topics/orders/partitions/0/isr") == [1, 2]
    assert find(tree, "/configs/topic/orders/retention.ms/") == "5"
    assert find(tree, "") is tree


def test_find_in_the_metadata_tree_accepts_names_that_contain_slashes() -> None:
    assert find({"topics": {"a/b": {"id": "x"}}}, "topics/a/b/id") == "x"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("topic", "there is no topic; there are cluster, features"),
        ("topics/nothing/id", "there is no nothing; there are orders"),
        ("topics/orders/id/more", "there is no more below a value"),
        ("brokers/1", "there is no 1; there are none"),
    ],
)
def test_an_unknown_path_of_the_metadata_tree_is_an_error_that_names_its_existing_part(
    path: str, expected: str
) -> None:
    with pytest.raises(PathNotFound, match=expected):
        find(tree_of(image(*ORDERS)), path)


def test_secrets_are_hidden_in_the_metadata_tree() -> None:
    hidden = events.Config(
        resource_type=ConfigResourceType.BROKER, resource_name="1", name="ssl.key.password", value="geheim"
    )
    tree = tree_of(image(hidden))
    assert find(tree, "configs/broker/1/ssl.key.password") == "[hidden]"
    assert "geheim" not in str(tree)


def test_differences_of_two_metadata_trees_contain_only_the_changed_paths() -> None:
    old = image(*ORDERS, config("retention.ms", "5"))
    change = events.PartitionChange(topic_id=TOPIC_ID, partition_id=0, isr=(2,), leader=2)
    new = replay(old, [change, config("segment.ms", "9")], 9, 2)
    told = {one.path: (one.before, one.after) for one in differences(tree_of(old), tree_of(new))}
    assert told.pop("cluster/offset") == (3, 9)
    assert told == {
        "cluster/epoch": (1, 2),
        "topics/orders/partitions/0/leader": (1, 2),
        "topics/orders/partitions/0/leader_epoch": (0, 1),
        "topics/orders/partitions/0/partition_epoch": (0, 1),
        "topics/orders/partitions/0/isr": ([1, 2], [2]),
        "configs/topic/orders/segment.ms": (None, "9"),
    }
    assert list(differences(tree_of(old), tree_of(old))) == []


def test_an_added_topic_is_one_change_between_two_metadata_trees() -> None:
    paths = [one.path for one in differences(tree_of(image()), tree_of(image(*ORDERS)))]
    assert [path for path in paths if not path.startswith("cluster/")] == ["topics/orders"]


def test_a_change_between_two_metadata_trees_is_rendered_as_one_line() -> None:
    assert render_change(Change("a/isr", [1, 2], [2])) == "~ a/isr  [1,2] → [2]"
    assert render_change(Change("topics/t", None, {"id": "x", "partitions": {"0": {}, "1": {}}})) == (
        "+ topics/t  id=x  partitions: 2"
    )
    assert render_change(Change("a", "x", None)) == "- a  x"


def test_a_metadata_tree_is_rendered_with_indentation() -> None:
    state = {"leader": 1, "isr": [1]}
    assert list(render({"t": {"id": "x", "partitions": {"0": state, "10": state}}})) == [
        "t",
        "  id  x",
        "  partitions",
        "    0   leader=1  isr=[1]",
        "    10  leader=1  isr=[1]",
    ]
    assert list(render({})) == ["-"]
    assert list(render([1, 2])) == ["[1,2]"]


def test_the_metadata_tree_shows_every_non_empty_field_of_a_partition() -> None:
    quiet = PartitionState((1,), (1,), -1, 0, 0)
    assert quiet.elr == ()
    change = events.PartitionChange(topic_id=TOPIC_ID, partition_id=0, isr=(), leader=-1, elr=(1, 2))
    shown = find(tree_of(replay(image(*ORDERS), [change], 9, 1)), "topics/orders/partitions/0")
    assert (shown["leader"], shown["isr"], shown["elr"]) == (None, [], [1, 2])
    assert "removing" not in shown
