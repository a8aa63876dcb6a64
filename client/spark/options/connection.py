"""Parse the options about connecting to the cluster and fetching from it. Most are settings of Kafka's clients."""

from __future__ import annotations

from collections.abc import Mapping

from kraft.client.spark.options.given import OptionError, ParsedOptions, read_given
from kraft.client.spark.options.table import Kind
from kraft.client.spark.settings import ConnectionSettings, FetchSettings, TlsFiles

BOOTSTRAP = "kafka.bootstrap.servers"
PROTOCOLS = ("PLAINTEXT", "SSL")
PEM = "PEM"
_JAVA_ENDINGS = (".jks", ".p12", ".pfx", ".pkcs12", ".bcfks", ".jceks")
_READ_COMMITTED = "read_committed"


def is_connected(given: ParsedOptions) -> bool:
    """Whether the options name brokers to connect to."""
    return given.has("bootstrap") or given.has(BOOTSTRAP)


def parse_connection(options: Mapping[str, str]) -> ConnectionSettings:
    """Parse only the connection settings from the options of a read or write. Raises OptionError."""
    own = {name: value for name, value in options.items() if name.lower().startswith(("kafka.", "bootstrap"))}
    return connection_of(read_given(own, Kind.SINK))


def connection_of(given: ParsedOptions) -> ConnectionSettings:
    """Return the connection settings. Raises OptionError if no broker is named or the TLS settings are inconsistent."""
    short, full = given.get("bootstrap"), given.get(BOOTSTRAP)
    if short is not None and full is not None and short != full:
        raise OptionError(f"bootstrap and {BOOTSTRAP} differ: give one of them")
    bootstrap = full or short
    if bootstrap is None:
        raise OptionError(f'option {BOOTSTRAP} is missing: .option("{BOOTSTRAP}", "HOST:PORT,...")')
    usual = ConnectionSettings(bootstrap=bootstrap)
    return ConnectionSettings(
        bootstrap=bootstrap,
        client_id=given.get("kafka.client.id", usual.client_id),
        request_timeout_ms=given.get("kafka.request.timeout.ms", usual.request_timeout_ms),
        metadata_max_age_ms=given.get("kafka.metadata.max.age.ms", usual.metadata_max_age_ms),
        rack=given.get("kafka.client.rack", usual.rack),
        tls=_tls_of(given),
    )


def _tls_of(given: ParsedOptions) -> TlsFiles | None:
    protocol = given.get("kafka.security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        hint = "; this client has no SASL yet" if protocol.startswith("SASL") else ""
        raise OptionError(f"option kafka.security.protocol={protocol}: expected {' or '.join(PROTOCOLS)}{hint}")
    if protocol == "PLAINTEXT":
        return None
    for store in ("truststore", "keystore"):
        _check_pem(given, store)
    chain, key = given.get("kafka.ssl.keystore.certificate.chain"), given.get("kafka.ssl.keystore.key")
    if (chain is None) != (key is None):
        raise OptionError("kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.key need each other")
    return TlsFiles(
        keystore_location=given.get("kafka.ssl.keystore.location"),
        certificate_and_key=f"{key}\n{chain}" if chain and key else None,
        key_password=given.get("kafka.ssl.key.password"),
        truststore_location=given.get("kafka.ssl.truststore.location"),
        truststore_certificates=given.get("kafka.ssl.truststore.certificates"),
        verify_hostname=given.get("kafka.ssl.endpoint.identification.algorithm", "https") != "",
    )


def _check_pem(given: ParsedOptions, store: str) -> None:
    """Raise OptionError if the store type is a Java key store; the message gives the commands that convert the store to
    PEM."""
    prefix = f"kafka.ssl.{store}"
    kind = given.get(f"{prefix}.type", PEM).upper()
    location = given.get(f"{prefix}.location", "")
    if kind == PEM and not location.lower().endswith(_JAVA_ENDINGS) and not given.has(f"{prefix}.password"):
        return
    source = location or "STORE"
    raise OptionError(
        f"{prefix} is a Java store ({'type ' + kind if kind != PEM else location or 'it has a password'}), and stores "
        f"are PEM here. Convert it: keytool -importkeystore -srckeystore {source} -destkeystore store.p12 "
        "-deststoretype PKCS12; openssl pkcs12 -in store.p12 -out store.pem -nodes; then give "
        f"{prefix}.location=store.pem without {prefix}.password"
    )


def fetch_of(given: ParsedOptions) -> FetchSettings:
    """Return the settings with which a read task fetches."""
    usual = FetchSettings()
    return FetchSettings(
        bytes_max=given.get("kafka.fetch.max.bytes", usual.bytes_max),
        partition_bytes_max=given.get("kafka.max.partition.fetch.bytes", usual.partition_bytes_max),
        wait_ms=given.get("kafka.fetch.max.wait.ms", usual.wait_ms),
        check_crcs=given.get("kafka.check.crcs", usual.check_crcs),
        read_committed=given.get("kafka.isolation.level") == _READ_COMMITTED,
        retries=given.get("fetchOffset.numRetries", usual.retries),
        retry_interval_ms=given.get("fetchOffset.retryIntervalMs", usual.retry_interval_ms),
        poll_timeout_ms=given.get("kafkaConsumer.pollTimeoutMs", usual.poll_timeout_ms),
        arrow_rows=given.get("arrowRows", usual.arrow_rows),
    )
