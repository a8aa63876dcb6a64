"""Rules for which machines can reach the admin listener of a node."""

from __future__ import annotations

import pytest

from kraft.config import ConfigError, NodeConfig
from kraft.config.admin import admin_tls

BROKER = {
    "node.id": "1",
    "process.roles": "broker",
    "listeners": "PLAINTEXT://localhost:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
}
TOKEN = {"kraft.admin.token": "0123456789abcdef"}
STORES = {
    "kraft.admin.security.protocol": "SSL",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "/etc/kraft/server.pem",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": "/etc/kraft/ca.pem",
}
REQUIRED = {**STORES, "listener.name.admin.ssl.client.auth": "required"}


def parse(address: str, **given: str) -> NodeConfig:
    return NodeConfig.parse({**BROKER, "kraft.admin.listener": address, **given})


@pytest.mark.parametrize("address", [":9404", "127.0.0.1:9404", "127.1.2.3:0", "localhost:9404", "[::1]:9404", ""])
def test_an_admin_listener_on_the_loopback_address_needs_no_token(address: str) -> None:
    assert parse(address).string("kraft.admin.listener") == address


@pytest.mark.parametrize("address", ["0.0.0.0:9404", "[::]:9404", "10.0.0.1:9404", "node-1.example.com:9404"])
@pytest.mark.parametrize("given", [{}, STORES], ids=["http", "https without client certificates"])
def test_an_admin_listener_reachable_from_other_machines_without_protection_is_refused(
    address: str, given: dict[str, str]
) -> None:
    with pytest.raises(ConfigError, match=r"can be reached from other machines.*kraft\.admin\.token"):
        parse(address, **given)


@pytest.mark.parametrize(
    "given", [TOKEN, REQUIRED, {"kraft.admin.anonymous": "true"}], ids=["token", "client certificates", "anonymous"]
)
def test_an_admin_listener_reachable_from_other_machines_needs_token_tls_or_permission(given: dict[str, str]) -> None:
    parse("0.0.0.0:9404", **given)


def test_tls_stores_of_the_admin_listener_override_those_of_the_node() -> None:
    own = {"listener.name.admin.ssl.keystore.location": "/etc/kraft/admin.pem"}
    tls = admin_tls(parse(":9404", **REQUIRED, **own))
    assert tls is not None
    assert (tls.keystore_location, tls.client_auth) == ("/etc/kraft/admin.pem", "required")
    assert admin_tls(parse(":9404")) is None
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location.*ADMIN"):
        parse(":9404", **{"kraft.admin.security.protocol": "SSL"})


@pytest.mark.parametrize("token", ["short", "with a space in it", "0123456789abcdé"])
def test_admin_token_that_is_short_or_has_invalid_characters_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ConfigError, match="at least 16 printable") as caught:
        parse(":9404", **{"kraft.admin.token": token})
    assert token not in str(caught.value)
