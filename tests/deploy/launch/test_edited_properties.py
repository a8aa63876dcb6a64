"""A user's edits of a node's file are kept when `kraft up` writes the file again, or are named in a notice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kraft.config.properties import parse_properties
from kraft.deploy.launch.edited_properties import OPTION_OF, merge_edits
from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout

LAYOUT = ClusterLayout(controllers=1, brokers=2, settings={"num.partitions": "3"})


def edit(folder: ClusterFolder, node: int, old: str, new: str) -> None:
    file = folder.node(node) / "server.properties"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def properties(folder: ClusterFolder, node: int) -> dict[str, str]:
    return parse_properties((folder.node(node) / "server.properties").read_text())


@pytest.fixture
def folder(tmp_path: Path) -> ClusterFolder:
    made = ClusterFolder(tmp_path)
    assert made.create(LAYOUT, "an-id") == ()
    return made


def test_edited_properties_are_kept_over_any_number_of_starts(folder: ClusterFolder) -> None:
    edit(folder, 1, "num.partitions=3", "num.partitions=5\nbroker.rack=r1")
    edit(folder, 2, "num.partitions=3\n", "")
    for layout in (LAYOUT, replace(LAYOUT, port=7000), LAYOUT):
        assert folder.create(layout, "an-id") == ()
        assert (properties(folder, 1)["broker.rack"], properties(folder, 1)["num.partitions"]) == ("r1", "5")
        assert "num.partitions" not in properties(folder, 2)
        assert properties(folder, 1)["listeners"] == f"PLAINTEXT://127.0.0.1:{layout.port}"


def test_an_unchanged_properties_file_is_not_rewritten(folder: ClusterFolder) -> None:
    edit(folder, 1, "num.partitions=3", "# my note\nnum.partitions=5")
    folder.create(LAYOUT, "an-id")
    assert "# my note" in (folder.node(1) / "server.properties").read_text()


def test_a_removed_properties_file_is_written_again(folder: ClusterFolder) -> None:
    expected = properties(folder, 1)
    (folder.node(1) / "server.properties").unlink()
    assert folder.create(LAYOUT, "an-id") == ()
    assert properties(folder, 1) == expected


def test_an_edit_of_a_key_that_kraft_up_always_sets_is_dropped_with_a_notice(folder: ClusterFolder) -> None:
    edit(folder, 2, "listeners=PLAINTEXT://127.0.0.1:9093", "listeners=PLAINTEXT://127.0.0.1:9999")
    (notice,) = folder.create(LAYOUT, "an-id")
    assert "2/server.properties" in notice
    assert "listeners (use --port and --external)" in notice
    assert properties(folder, 2)["listeners"] == "PLAINTEXT://127.0.0.1:9093"
    assert folder.create(LAYOUT, "an-id") == ()


def test_a_setting_given_to_kraft_up_overrides_an_edit_of_the_properties_file_with_a_notice(
    folder: ClusterFolder,
) -> None:
    edit(folder, 1, "num.partitions=3", "num.partitions=5")
    (notice,) = folder.create(replace(LAYOUT, settings={"num.partitions": "7"}), "an-id")
    assert "num.partitions (this start sets '7')" in notice
    assert properties(folder, 1)["num.partitions"] == "7"


def test_an_edit_of_a_setting_is_dropped_with_a_notice_if_this_start_omits_the_setting(folder: ClusterFolder) -> None:
    edit(folder, 1, "num.partitions=3", "num.partitions=5")
    (notice,) = folder.create(replace(LAYOUT, settings={}), "an-id")
    assert "num.partitions (this start leaves it out)" in notice
    assert "num.partitions" not in properties(folder, 1)


def test_edits_in_a_folder_of_an_earlier_release_are_kept(folder: ClusterFolder) -> None:
    text = folder.description.read_text()
    folder.description.write_text(text[: text.index(',\n  "written"')] + "\n}\n")
    edit(folder, 1, "num.partitions=3", "broker.rack=r1\nnum.partitions=3")
    assert folder.create(LAYOUT, "an-id") == ()
    assert properties(folder, 1)["broker.rack"] == "r1"


def test_the_error_for_an_unparsable_properties_file_names_the_file(folder: ClusterFolder) -> None:
    edit(folder, 1, "num.partitions=3", "num.partitions=\\uzz")
    with pytest.raises(LaunchError, match=r"1/server\.properties: .*fix or delete the file"):
        folder.create(LAYOUT, "an-id")


def test_edits_of_all_keys_that_kraft_up_needs_are_dropped() -> None:
    layout = ClusterLayout(combined=1, external="h:9999", fault_control=True, profile="kafka")
    (node,) = layout.nodes()
    written = layout.properties(node, "/x")
    found = {key: f"{value}x" for key, value in written.items()}
    merged = merge_edits(written, found, written)
    assert len(merged.overruled) == len(OPTION_OF)
    assert {key for key, value in merged.properties.items() if value == written[key]} == set(OPTION_OF)


def test_racks_are_assigned_round_robin_and_one_node_has_its_own_settings() -> None:
    layout = ClusterLayout(
        controllers=1,
        brokers=3,
        racks="a, b",
        settings={"num.partitions": "3"},
        node_settings={"2": {"num.partitions": "9"}},
    )
    found = {node.node_id: layout.properties(node, "/x") for node in layout.nodes()}
    assert [found[node].get("broker.rack") for node in (101, 1, 2, 3)] == [None, "a", "b", "a"]
    assert [found[node]["num.partitions"] for node in (101, 1, 2, 3)] == ["3", "3", "9", "3"]


@pytest.mark.parametrize("racks", ["", "a,,b", "a,b,c"])
def test_racks_without_a_name_or_a_broker_are_refused(racks: str) -> None:
    with pytest.raises(LaunchError, match="--racks"):
        replace(LAYOUT, racks=racks)


def test_a_setting_for_a_missing_node_is_refused() -> None:
    with pytest.raises(LaunchError, match=r"there is no node 7; there are 101, 1, 2"):
        replace(LAYOUT, node_settings={"7": {"num.partitions": "9"}})


def test_an_edited_properties_file_that_is_not_text_is_refused_by_name(folder: ClusterFolder) -> None:
    file = folder.node(1) / "server.properties"
    file.write_bytes(file.read_bytes() + b"broker.rack=\xff\n")
    with pytest.raises(LaunchError, match=r"1/server\.properties: .*fix or delete the file"):
        folder.create(LAYOUT, "an-id")
