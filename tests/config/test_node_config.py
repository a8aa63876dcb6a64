"""A node's properties: valid ones are accepted, and each invalid one is refused with a sentence that says what to
write.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft.config import ConfigError, ListenerConfig, NodeConfig, SecurityProtocol, VoterAddress
from kraft.config.tls import tls_config

VOTERS = "101@localhost:9192,102@localhost:9193,103@localhost:9194"

BROKER = {
    "process.roles": "broker",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": VOTERS,
    "log.dirs": "/data/a, /data/b",
}
CONTROLLER = {
    "process.roles": "controller",
    "node.id": "101",
    "listeners": "CONTROLLER://localhost:9192",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": VOTERS,
    "log.dirs": "/data",
}
COMBINED = {
    **BROKER,
    "process.roles": "broker,controller",
    "node.id": "101",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9192",
    "advertised.listeners": "PLAINTEXT://example.org:9092",
}
TLS = {
    **BROKER,
    "listeners": "SSL://localhost:9092",
    "security.inter.broker.protocol": "SSL",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "/etc/kraft/key.pem",
}


def refusal(properties: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        NodeConfig.parse(properties)
    return str(caught.value)


def test_a_broker_configuration_has_kafkas_defaults() -> None:
    config = NodeConfig.parse(BROKER)
    assert (config.node_id, config.is_broker, config.is_controller) == (1, True, False)
    assert config.listeners == (ListenerConfig("PLAINTEXT", "127.0.0.1", 9092, SecurityProtocol.PLAINTEXT),)
    assert config.advertised_listeners == config.listeners
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert config.log_dirs == ("/data/a", "/data/b")
    assert config.metadata_log_dir == "/data/a"
    assert config.quorum_voters[0] == VoterAddress(101, "localhost", 9192)
    assert config.integer("broker.session.timeout.ms") == 9000
    assert config.boolean("auto.create.topics.enable") is True
    assert config.float("log.cleaner.min.cleanable.ratio") == 0.5
    with pytest.raises(ConfigError, match="has the value None"):
        config.integer("log.retention.ms")
    assert config.warnings == ()


def test_a_controller_needs_no_client_listener() -> None:
    config = NodeConfig.parse(CONTROLLER)
    assert config.inter_broker_listener_name == ""
    assert [listener.name for listener in config.advertised_listeners] == ["CONTROLLER"]


def test_a_combined_node_has_both_kinds_of_listeners() -> None:
    config = NodeConfig.parse(COMBINED)
    assert [str(listener) for listener in config.advertised_listeners] == [
        "PLAINTEXT://example.org:9092",
        "CONTROLLER://:9192",
    ]


def test_an_ipv6_listener_host_is_in_brackets() -> None:
    config = NodeConfig.parse({**BROKER, "listeners": "PLAINTEXT://[::1]:9092"})
    assert config.listeners[0].host == "::1"
    assert str(config.listeners[0]) == "PLAINTEXT://[::1]:9092"


def test_broker_id_is_another_name_of_node_id() -> None:
    properties = {**BROKER, "broker.id": "7"}
    assert "must be the same number" in refusal(properties)
    del properties["node.id"]
    assert NodeConfig.parse(properties).node_id == 7


def test_a_misspelt_key_is_refused_with_the_nearest_known_one() -> None:
    assert "did you mean log.retention.hours?" in refusal({**BROKER, "log.retension.hours": "1"})
    assert "it is a topic key" in refusal({**BROKER, "retention.ms": "1"})


def test_a_key_of_older_kafka_releases_is_refused_with_its_replacement() -> None:
    assert "there is no ZooKeeper" in refusal({**BROKER, "zookeeper.connect": "localhost:2181"})


def test_unknown_config_keys_become_warnings_with_the_option_ignore_unknown() -> None:
    config = NodeConfig.parse({**BROKER, "my.plugin.key": "1"}, ignore_unknown=True)
    assert len(config.warnings) == 1
    assert "my.plugin.key" in config.warnings[0]


def test_config_key_without_effect_gives_one_warning() -> None:
    config = NodeConfig.parse({**BROKER, "num.io.threads": "16"})
    assert [warning for warning in config.warnings if "num.io.threads has no effect" in warning]
    assert NodeConfig.parse({**BROKER, "num.io.threads": "8"}).warnings == ()


def test_unsupported_config_key_is_refused_with_the_reason_unless_set_to_its_default() -> None:
    assert "this release has no tiered storage" in refusal({**BROKER, "remote.log.storage.system.enable": "true"})
    NodeConfig.parse({**BROKER, "remote.log.storage.system.enable": "false"})
    assert "must not pretend otherwise" in refusal({**BROKER, "authorizer.class.name": "my.Authorizer"})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"process.roles": ""}, "process.roles: is not set"),
        ({"process.roles": "brokers"}, "must be a list of broker, controller"),
        ({"node.id": "-1"}, "must be at least 0"),
        ({"node.id": "one"}, "'one' is not a whole number"),
        ({"node.id": "99999999999"}, "does not fit 32 bits"),
        ({"node.id": "101"}, "is a voter in controller.quorum.voters but not a controller"),
        ({"auto.create.topics.enable": "yes"}, "write true or false"),
        ({"log.cleaner.min.cleanable.ratio": "2"}, "must lie between 0 and 1"),
        ({"log.cleaner.min.cleanable.ratio": "much"}, "is not a number"),
        ({"controller.listener.names": ""}, "controller.listener.names: is not set"),
        ({"controller.quorum.voters": ""}, "no way to the quorum"),
        ({"controller.quorum.voters": "localhost:9192"}, "expected id@host:port"),
        ({"controller.quorum.voters": "101@localhost"}, "expected host:port"),
        ({"controller.quorum.voters": "101@localhost:1,101@localhost:2"}, "the voter 101 stands twice"),
        ({"listeners": ""}, "names no listener"),
        ({"listeners": "localhost:9092"}, "expected NAME://host:port"),
        ({"listeners": "PLAINTEXT://localhost:99999"}, "a port from 0 to 65535"),
        ({"listeners": "PLAINTEXT://::1:9092"}, "stands in brackets"),
        ({"listeners": "MINE://localhost:9092"}, "no security protocol is defined for the listener MINE"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "PLAINTEXT stands twice"),
        ({"listeners": "PLAINTEXT://:9092,SSL://:9092"}, "both bind port 9092"),
        ({"listeners": "CONTROLLER://:9092"}, "no listener has the protocol PLAINTEXT"),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9192"}, "a broker alone must not have the controllers'"),
        ({"listeners": "SASL_PLAINTEXT://:9092", "inter.broker.listener.name": "SASL_PLAINTEXT"}, "no SASL"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "no client can reach"),
        ({"advertised.listeners": "SSL://here:9093,PLAINTEXT://here:9092"}, "SSL is not among listeners"),
        ({"inter.broker.listener.name": "INTERNAL"}, "INTERNAL is not among the broker's listeners"),
        ({"inter.broker.listener.name": "CONTROLLER"}, "CONTROLLER is a controller listener"),
        ({"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"}, "together"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "expected NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "PLAINTEXT:TLS"}, "expected NAME:PROTOCOL with a protocol of"),
        ({"log.dirs": ","}, "names no folder"),
        ({"log.dirs": "/a,/a"}, "the folder /a stands twice"),
        ({"broker.heartbeat.interval.ms": "9000"}, "must be less than broker.session.timeout.ms"),
    ],
)
def test_an_invalid_broker_configuration_is_refused(change: dict[str, str], expected: str) -> None:
    properties = {**BROKER, **change}
    if change.get("log.dirs") == ",":
        properties["log.dir"] = ","
    assert expected in refusal(properties)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"node.id": "7"}, "this controller's node.id 7 is not among the voters 101, 102, 103"),
        ({"listeners": "PLAINTEXT://:9092"}, "a controller needs a listener of controller.listener.names"),
        ({"listeners": "CONTROLLER://:9192,PLAINTEXT://:9092"}, "may only have controller listeners"),
    ],
)
def test_an_invalid_controller_configuration_is_refused(change: dict[str, str], expected: str) -> None:
    assert expected in refusal({**CONTROLLER, **change})


def test_a_combined_node_needs_a_client_listener_too() -> None:
    properties = {**COMBINED, "listeners": "CONTROLLER://:9192", "inter.broker.listener.name": "PLAINTEXT"}
    del properties["advertised.listeners"]
    assert "a broker needs a listener that is not a controller listener" in refusal(properties)


def test_listener_specific_tls_settings_override_those_for_all_listeners() -> None:
    config = NodeConfig.parse({**TLS, "listener.name.ssl.ssl.client.auth": "required"})
    tls = config.tls("SSL")
    assert tls is not None
    assert (tls.keystore_location, tls.client_auth, tls.check_hostname) == ("/etc/kraft/key.pem", "required", True)
    assert NodeConfig.parse(BROKER).tls("PLAINTEXT") is None


def test_sasl_listener_requests_client_certificates_only_by_its_listener_specific_key() -> None:
    listener = ListenerConfig("CLIENTS", "127.0.0.1", 9093, SecurityProtocol.SASL_SSL)
    values = {"ssl.keystore.location": "/k.pem", "ssl.keystore.type": "PEM", "ssl.client.auth": "required"}
    assert tls_config(listener, values).client_auth == "none"
    assert (
        tls_config(listener, {**values, "listener.name.clients.ssl.client.auth": "requested"}).client_auth
        == "requested"
    )
    assert tls_config(replace(listener, security_protocol=SecurityProtocol.SSL), values).client_auth == "required"


@pytest.mark.parametrize("key", ["ssl.principal.mapping.rules", "listener.name.ssl.ssl.principal.mapping.rules"])
def test_principal_mapping_rules_are_refused_as_unsupported(key: str) -> None:
    assert "the principal is the certificate's whole name" in refusal({**TLS, key: "RULE:^CN=(.*?),.*$/$1/,DEFAULT"})
    NodeConfig.parse({**TLS, key: "DEFAULT"})


def test_a_java_key_store_is_refused_with_advice_to_convert_it() -> None:
    properties = {**TLS, "ssl.keystore.location": "/etc/kafka/server.jks"}
    del properties["ssl.keystore.type"]
    assert "keytool -importkeystore" in refusal(properties)
    assert "keytool -importkeystore" in refusal({**TLS, "ssl.keystore.type": "JKS"})
    assert "keytool -importkeystore" in refusal({**TLS, "ssl.truststore.location": "/etc/kafka/trust.jks"})


def test_tls_without_a_key_is_refused() -> None:
    properties = dict(TLS)
    del properties["ssl.keystore.location"]
    assert "needs a PEM file with key and certificate chain" in refusal(properties)
    assert "TLSv1 is not offered" in refusal({**TLS, "ssl.enabled.protocols": "TLSv1"})


def test_secrets_do_not_appear_in_errors_or_in_the_representation() -> None:
    config = NodeConfig.parse({**TLS, "ssl.key.password": "hunter2"})
    assert "hunter2" not in repr(config)


def test_dynamic_broker_settings_override_those_in_the_nodes_file() -> None:
    config = NodeConfig.parse({**BROKER, "log.retention.ms": "5"})
    changed = config.overlay({"log.retention.ms": "7", "my.plugin.key": "x"})
    assert (config.integer("log.retention.ms"), changed.integer("log.retention.ms")) == (5, 7)
    assert changed.listeners == config.listeners


def test_reading_a_config_key_as_the_wrong_type_names_the_key() -> None:
    config = NodeConfig.parse(BROKER)
    for ask in (config.integer, config.boolean, config.float):
        with pytest.raises(ConfigError, match="listeners"):
            ask("listeners")
    with pytest.raises(ConfigError, match="not a list"):
        config.list("node.id")
    with pytest.raises(ConfigError, match="there is no listener NONE"):
        config.tls("NONE")
    assert config.string("broker.rack") == ""


def test_dialling_another_nodes_listener_uses_the_protocol_map_and_needs_no_private_key() -> None:
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/etc/kraft/ca.pem"}
    protocols = {"listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT"}
    config = NodeConfig.parse({**BROKER, **trust, **protocols})
    tls = config.dial_tls("CONTROLLER")
    assert tls is not None
    assert (tls.keystore_location, tls.truststore_location) == (None, "/etc/kraft/ca.pem")
    assert config.dial_tls("PLAINTEXT") is None
    assert config.dial_tls("ELSEWHERE", SecurityProtocol.SSL) == tls
    own = {"listener.name.controller.ssl.truststore.location": "/etc/kraft/controllers.pem"}
    tls = NodeConfig.parse({**BROKER, **trust, **own, **protocols}).dial_tls("CONTROLLER")
    assert tls is not None
    assert tls.truststore_location == "/etc/kraft/controllers.pem"
    with pytest.raises(ConfigError, match="no security protocol is defined for the listener ELSEWHERE"):
        config.dial_tls("ELSEWHERE")
    unknown = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}
    assert "no security protocol is defined for the listener CONTROLLER" in refusal({**BROKER, **unknown})
