"""TlsConfig: TLS settings of a listener, from its `ssl.…` keys. Stores are PEM, in files or inline (KIP-651)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kraft.config.errors import ConfigError
from kraft.config.key import ConfigValue
from kraft.config.listeners import ListenerConfig, SecurityProtocol
from kraft.config.validators import CONVERSION

_PROTOCOLS = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """TLS settings of one listener, for accepting and for dialling.

    Either `keystore_location` names a PEM file with key and certificate chain, or `private_key` and `certificate_chain`
    hold PEM text. The same applies to `truststore_location` and `trusted_certificates`. `client_auth` is none,
    requested or required. `check_hostname` applies to the dialling side."""

    keystore_location: str | None
    private_key: str | None
    certificate_chain: str | None
    key_password: str | None
    truststore_location: str | None
    trusted_certificates: str | None
    client_auth: str
    enabled_protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    check_hostname: bool


def tls_config(listener: ListenerConfig, values: Mapping[str, ConfigValue], *, is_bound: bool = True) -> TlsConfig:
    """Return the TLS settings of a listener. Raises ConfigError if a store is not PEM, or a required store is missing.
    For a listener that this node only dials, no private key is required."""
    prefix = f"listener.name.{listener.name.lower()}."

    def value(key: str) -> ConfigValue:
        return values.get(prefix + key, values.get(key))

    def text(key: str) -> str | None:
        found = value(key)
        return found if isinstance(found, str) and found else None

    location, key, chain = (
        text("ssl.keystore.location"),
        text("ssl.keystore.key"),
        text("ssl.keystore.certificate.chain"),
    )
    has_key = location is not None or (key is not None and chain is not None)
    if is_bound and not has_key:
        raise ConfigError(
            "ssl.keystore.location",
            f"the listener {listener.name} is {listener.security_protocol.name} and needs a PEM file with key and "
            "certificate chain here, or ssl.keystore.key and ssl.keystore.certificate.chain",
        )
    if has_key:
        _require_pem("ssl.keystore.type", value("ssl.keystore.type"), listener)
    if text("ssl.truststore.location") or text("ssl.truststore.certificates"):
        _require_pem("ssl.truststore.type", value("ssl.truststore.type"), listener)
    return TlsConfig(
        keystore_location=location,
        private_key=key,
        certificate_chain=chain,
        key_password=text("ssl.key.password"),
        truststore_location=text("ssl.truststore.location"),
        trusted_certificates=text("ssl.truststore.certificates"),
        client_auth=_client_auth(listener, values.get(prefix + "ssl.client.auth"), values.get("ssl.client.auth")),
        enabled_protocols=_protocols(value("ssl.enabled.protocols")),
        cipher_suites=_strings(value("ssl.cipher.suites")),
        check_hostname=text("ssl.endpoint.identification.algorithm") == "https",
    )


def _client_auth(listener: ListenerConfig, own: ConfigValue, of_all: ConfigValue) -> str:
    """Return client_auth. Clients of a SASL listener authenticate with SASL, so only a listener-specific key makes it
    request certificates."""
    found = own if own is not None or listener.security_protocol is SecurityProtocol.SASL_SSL else of_all
    return found if isinstance(found, str) and found else "none"


def _require_pem(key: str, value: ConfigValue, listener: ListenerConfig) -> None:
    if value != "PEM":
        raise ConfigError(
            key,
            f"is {value} (Kafka's default is JKS), but the listener {listener.name} can only use PEM: set {key}=PEM, "
            f"and {CONVERSION}",
        )


def _protocols(value: ConfigValue) -> tuple[str, ...]:
    chosen = _strings(value) or _PROTOCOLS
    for protocol in chosen:
        if protocol not in _PROTOCOLS:
            raise ConfigError("ssl.enabled.protocols", f"{protocol} is not offered; use {', '.join(_PROTOCOLS)}")
    return chosen


def _strings(value: ConfigValue) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()
