"""The configuration of Apache Kafka's nodes in the benchmark."""

from pathlib import Path

from kraft.sim.chaos.apache.kafka_files import java
from kraft.sim.chaos.apache.kafka_layout import KafkaLayout, uuid


def test_a_single_kafka_node_is_controller_and_broker() -> None:
    layout = KafkaLayout.plain(9000, is_single=True)
    values = layout.properties(1, Path("/data"))
    assert layout.nodes == [1]
    assert values["process.roles"] == "broker,controller"
    assert values["listeners"] == "PLAINTEXT://127.0.0.1:9000,CONTROLLER://127.0.0.1:9100"
    assert values["transaction.state.log.min.isr"] == values["offsets.topic.replication.factor"] == "1"


def test_three_kafka_brokers_have_three_controllers() -> None:
    layout = KafkaLayout.plain(9000, is_single=False)
    assert layout.nodes == [101, 102, 103, 1, 2, 3]
    assert layout.properties(102, Path("/data"))["process.roles"] == "controller"
    assert layout.properties(2, Path("/data"))["listeners"] == "PLAINTEXT://127.0.0.1:9001"
    assert layout.properties(2, Path("/data"))["transaction.state.log.min.isr"] == "2"
    assert [voter.split(":")[:2] for voter in layout.initial_controllers.split(",")] == [
        ["101@127.0.0.1", "9100"],
        ["102@127.0.0.1", "9101"],
        ["103@127.0.0.1", "9102"],
    ]


def test_kafka_nodes_with_racks_have_both_roles_and_are_all_voters() -> None:
    layout = KafkaLayout.of_racks(9000, ("near", "far"))
    assert layout.nodes == [1, 2]
    values = layout.properties(2, Path("/data"))
    assert (values["process.roles"], values["broker.rack"]) == ("broker,controller", "far")
    assert values["listeners"] == "PLAINTEXT://127.0.0.1:9001,CONTROLLER://127.0.0.1:9101"
    assert values["controller.quorum.bootstrap.servers"] == "127.0.0.1:9100,127.0.0.1:9101"
    assert "broker.rack" not in KafkaLayout.plain(9000, is_single=True).properties(1, Path("/data"))


def test_a_cluster_id_is_not_mistaken_for_an_option_of_kafkas_tools() -> None:
    found = [uuid() for _ in range(500)]
    assert {len(one) for one in found} == {22}
    assert not any(one.startswith("-") for one in found)


def test_the_java_command_for_kafka_has_the_class_and_its_arguments_last() -> None:
    assert java(Path("/libs"), ("-Xmx1G",), "kafka.Kafka", "it")[-4:] == ["-cp", "/libs/*", "kafka.Kafka", "it"]
