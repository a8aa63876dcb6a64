"""Layouts from the arguments of `kraft up`: nodes, ports, and properties that a node accepts."""

from __future__ import annotations

import pytest

from kraft.config import NodeConfig
from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.layout import ClusterLayout, is_cluster_id, new_cluster_id


def test_three_controllers_and_three_brokers_are_the_default() -> None:
    nodes = ClusterLayout().nodes()
    assert [(node.node_id, node.roles, node.ports) for node in nodes] == [
        (101, ("controller",), (9192,)),
        (102, ("controller",), (9193,)),
        (103, ("controller",), (9194,)),
        (1, ("broker",), (9092,)),
        (2, ("broker",), (9093,)),
        (3, ("broker",), (9094,)),
    ]


def test_nodes_with_both_roles_have_a_broker_port_and_a_controller_port() -> None:
    nodes = ClusterLayout(combined=2, port=7000).nodes()
    assert [(node.node_id, node.roles, node.ports) for node in nodes] == [
        (1, ("controller", "broker"), (7000, 7100)),
        (2, ("controller", "broker"), (7001, 7101)),
    ]


@pytest.mark.parametrize(
    "layout",
    [
        ClusterLayout(),
        ClusterLayout(combined=1),
        ClusterLayout(combined=3, external="kafka.example.org:19092"),
        ClusterLayout(profile="kafka", settings={"num.partitions": "7"}),
    ],
)
def test_every_node_accepts_its_properties_without_a_warning(layout: ClusterLayout) -> None:
    for node in layout.nodes():
        config = NodeConfig.parse(layout.properties(node, "/data/x"))
        assert (config.node_id, config.roles) == (node.node_id, frozenset(node.roles))
        assert config.warnings == ()
        assert config.log_dirs == ("/data/x/data",)
        assert config.integer("metadata.max.retention.ms") == -1


def test_brokers_advertise_the_external_name_to_outside_clients() -> None:
    layout = ClusterLayout(brokers=2, external="kafka.example.org:19092")
    config = NodeConfig.parse(layout.properties(layout.nodes()[-1], "/data/2"))
    assert "EXTERNAL://kafka.example.org:19093" in [str(listener) for listener in config.advertised_listeners]
    assert "EXTERNAL://0.0.0.0:19093" in [str(listener) for listener in config.listeners]


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_default_replication_survives_a_broker_failure_if_there_are_enough_brokers(
    brokers: int, replicas: str, in_sync: str
) -> None:
    for shape in ({"brokers": brokers}, {"combined": brokers}):
        layout = ClusterLayout(**shape)
        said = [layout.properties(node, "/x") for node in layout.nodes()]
        assert {one["default.replication.factor"] for one in said} == {replicas}
        assert {one["min.insync.replicas"] for one in said} == {in_sync}
    plain = ClusterLayout(brokers=brokers, profile="kafka")
    assert "default.replication.factor" not in plain.properties(plain.nodes()[0], "/x")


def test_settings_of_a_cluster_layout_are_in_the_properties_of_every_node() -> None:
    layout = ClusterLayout(settings={"num.partitions": "7"})
    assert all(layout.properties(node, "/x")["num.partitions"] == "7" for node in layout.nodes())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"controllers": 0}, "1 to 100 controllers"),
        ({"port": 65500}, "choose a lower one"),
        ({"profile": "prod"}, "expected dev or kafka"),
    ],
)
def test_a_cluster_layout_with_an_impossible_number_port_or_profile_is_refused(
    arguments: dict[str, int | str], expected: str
) -> None:
    with pytest.raises(LaunchError, match=expected):
        ClusterLayout(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("external", ["kafka.example.org", ":9094", "host:port", "host:0", "host:65500"])
def test_an_external_address_needs_host_and_port(external: str) -> None:
    with pytest.raises(LaunchError, match="expected HOST:PORT") as failure:
        ClusterLayout(external=external)
    assert failure.value.kind == "arguments"


def test_a_cluster_id_is_sixteen_bytes_in_base64() -> None:
    ids = {new_cluster_id() for _ in range(50)}
    assert len(ids) == 50
    assert all(is_cluster_id(text) for text in ids)
    assert not is_cluster_id("my cluster")
    assert not is_cluster_id("!" * 22)
