"""The connection of a command to its cluster: precedence of settings, and TLS settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from kraft.deploy.cli.app import application
from kraft.deploy.cli.connection import SHARED_OPTIONS, ClusterConnection, over_network, pair
from kraft.deploy.cli.output import CommandFailed
from kraft.deploy.cli.tls_settings import client_tls

LOCAL = {"up", "down", "status", "logs", "kill", "stop", "start", "pause", "resume", "node", "completion", "run"} | {
    "rolling-restart"
}
WITHOUT_JSON = {("completion",), ("run",), ("chaos", "show"), ("partitions", "reassign", "plan"), ("spark", "shell")}
"""Commands without --json. Their output is always for programs, or comes from another program."""
LOCAL_GROUPS = {"storage", "log", "fault", "sim", "chaos"}
LOCAL_OF_GROUPS = {
    ("spark", "list"),
    ("spark", "tables"),
    ("spark", "options"),
    ("configs", "keys"),
    ("configs", "check"),
}


def connect(**given: Any) -> ClusterConnection:
    """Return the connection that a command gets with these options."""
    seen: list[ClusterConnection] = []

    def verb(connection: ClusterConnection) -> None:
        seen.append(connection)

    over_network(verb)(**{name: default for name, (_, default) in SHARED_OPTIONS.items()} | given)
    return seen[0]


def test_settings_on_the_command_line_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\nlinger.ms=5\nacks = 1\nssl.truststore.location=/file.pem\n")
    from_file = connect(command_config=file)
    assert from_file.bootstrap_servers == "file:1"
    assert from_file.settings == {"linger.ms": "5", "acks": "1", "ssl.truststore.location": "/file.pem"}
    both = connect(
        command_config=file,
        bootstrap_server="line:2",
        tls_ca="/line.pem",
        client_settings=["acks=all", "client.id=c=d"],
    )
    assert both.bootstrap_servers == "line:2"
    assert (both.settings["acks"], both.settings["linger.ms"], both.settings["client.id"]) == ("all", "5", "c=d")
    assert both.settings["ssl.truststore.location"] == "/line.pem"
    assert connect(command_config=file, client_settings=["bootstrap.servers=x:3"]).bootstrap_servers == "x:3"


def test_a_missing_command_config_file_is_named_in_the_error() -> None:
    with pytest.raises(CommandFailed, match=r"/nowhere/x.properties: No such file"):
        connect(command_config=Path("/nowhere/x.properties"))


def test_a_properties_file_that_is_not_text_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(b"\x93\xff")
    with pytest.raises(CommandFailed, match=r"client\.properties: this is not text"):
        connect(command_config=file)


@pytest.mark.parametrize("entry", ["acks", "=all", " = "])
def test_a_client_setting_on_the_command_line_must_have_the_form_key_equals_value(entry: str) -> None:
    with pytest.raises(CommandFailed, match="expected KEY=VALUE"):
        pair(entry, "-X")


def test_each_kind_of_client_gets_only_the_settings_it_knows() -> None:
    settings = [
        "linger.ms=5",
        "fetch.min.bytes=7",
        "client.id=me",
        "security.protocol=ssl",
        "ssl.truststore.location=/a",
    ]
    connection = connect(bootstrap_server="h:1", client_settings=settings)
    sending, reading = connection.producer_settings(), connection.consumer_settings()
    assert sending.pop("tls").authorities_path == reading.pop("tls").authorities_path == "/a"
    assert sending == {"linger_ms": "5", "client_id": "me", "bootstrap_servers": "h:1"}
    assert reading == {"fetch_min_bytes": "7", "client_id": "me", "bootstrap_servers": "h:1"}


def test_a_producer_gets_the_timeout_option_as_delivery_timeout_only_if_the_user_gave_it() -> None:
    patient, hurried = connect(bootstrap_server="h:1"), connect(bootstrap_server="h:1", timeout=2.5)
    assert (patient.timeout_ms, hurried.timeout_ms) == (10_000, 2_500)
    assert "delivery_timeout_ms" not in patient.producer_settings()
    assert hurried.producer_settings()["delivery_timeout_ms"] == 2_500
    own = connect(bootstrap_server="h:1", timeout=2.5, client_settings=["delivery.timeout.ms=9"])
    assert own.producer_settings()["delivery_timeout_ms"] == "9"


def test_a_given_option_overrides_a_setting_and_an_omitted_one_does_not() -> None:
    connection = connect(bootstrap_server="h:1", client_settings=["acks=1", "compression.type=lz4"])
    settings = connection.producer_settings(acks="all", compression_type=None)
    assert (settings["acks"], settings["compression_type"]) == ("all", "lz4")


def test_an_unknown_client_setting_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(CommandFailed, match=r"there is no such client setting; did you mean linger\.ms\?"):
        connect(client_settings=["linger.mss=5"])


def test_a_group_id_in_a_properties_file_does_not_make_consume_join_the_group(tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text("bootstrap.servers=file:1\ngroup.id=team\ngroup.instance.id=me\n")
    connection = connect(command_config=file)
    assert not {"group_id", "group_instance_id"} & connection.consumer_settings().keys()
    member = connection.consumer_settings("others")
    assert (member["group_id"], member["group_instance_id"]) == ("others", "me")
    with pytest.raises(CommandFailed, match="give kraft consume --group"):
        connect(client_settings=["group.id=team"])


def test_a_share_consumer_asks_for_no_more_records_than_the_command_prints() -> None:
    """Apache Kafka 4.3 counts a delivery that is released unread."""
    usual = connect(bootstrap_server="h:1")
    assert "max_poll_records" not in usual.share_consumer_settings("jobs", None)
    assert usual.share_consumer_settings("jobs", 3)["max_poll_records"] == 3
    assert "max_poll_records" not in usual.share_consumer_settings("jobs", 1_000)
    own = connect(bootstrap_server="h:1", client_settings=["max.poll.records=5"])
    assert own.share_consumer_settings("jobs", 7)["max_poll_records"] == "5"
    assert own.share_consumer_settings("jobs", 3)["max_poll_records"] == 3


def test_an_unknown_setting_in_a_properties_file_is_only_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text("bootstrap.servers=file:1\nkey.deserializer=org.example.Text\nfetch.min.bytes=7\n")
    assert connect(command_config=file).settings == {"fetch.min.bytes": "7"}
    assert capsys.readouterr().err == f"{file}: no effect here: key.deserializer\n"


def test_an_empty_bootstrap_address_is_refused() -> None:
    with pytest.raises(CommandFailed, match="--bootstrap-server is empty"):
        connect(bootstrap_server="")


def test_without_security_protocol_there_is_no_tls() -> None:
    assert client_tls({}) is None
    assert client_tls({"security.protocol": "plaintext"}) is None
    assert connect(tls=True).tls() is not None


def test_tls_stores_are_pem_in_files_or_as_text() -> None:
    files = client_tls(
        {
            "security.protocol": "SSL",
            "ssl.truststore.location": "/ca.pem",
            "ssl.keystore.location": "/me.pem",
            "ssl.key.password": "geheim",
        }
    )
    assert files is not None
    assert (files.authorities_path, files.certificate_path, files.key_password) == ("/ca.pem", "/me.pem", "geheim")
    assert files.verify_hostname
    text = client_tls(
        {
            "security.protocol": "SSL",
            "ssl.truststore.certificates": "CA",
            "ssl.keystore.certificate.chain": "CHAIN",
            "ssl.keystore.key": "KEY",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert text is not None
    assert (text.authorities, text.certificate_and_key, text.verify_hostname) == ("CA", "KEY\nCHAIN", False)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"security.protocol": "SASL_SSL"}, "SASL not yet"),
        ({"security.protocol": "SSL", "ssl.truststore.type": "JKS"}, "stores are PEM here"),
    ],
)
def test_unsupported_tls_settings_are_refused_with_the_supported_values(
    settings: dict[str, str], expected: str
) -> None:
    with pytest.raises(CommandFailed, match=expected) as failure:
        client_tls(settings)
    assert failure.value.code == 2


def verbs(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from verbs(command, (*path, name))
        else:
            yield (*path, name), command


def test_every_network_command_has_the_shared_options_and_every_command_has_json() -> None:
    for path, command in verbs(typer.main.get_command(application())):
        names = {option for item in command.params for option in item.opts}
        is_local = path[0] in LOCAL or path[0] in LOCAL_GROUPS or path in LOCAL_OF_GROUPS
        assert ("--bootstrap-server" in names) is not is_local, path
        assert ("--command-config" in names) is not is_local, path
        assert "--json" in names or path in WITHOUT_JSON or path[0] == "sim", path
        assert command.help, path


def test_running_a_command_imports_only_the_module_of_that_command() -> None:
    assert list(typer.main.get_command(application("kill")).commands) == ["kill"]
    assert list(typer.main.get_command(application("groups")).commands) == ["groups"]
    assert len(typer.main.get_command(application("gruops")).commands) > 20


def test_refused_connections_are_retried_for_2_s_or_the_given_timeout() -> None:
    assert connect().refused_ms == 2_000
    assert connect(timeout=30).refused_ms is None
