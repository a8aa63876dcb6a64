"""The settings of producers and consumers: one field per Kafka configuration key, for example `linger_ms` for
`linger.ms`.

A client takes them as keyword arguments, in either spelling. Values are native, or strings as in a properties file.

One file can serve all kinds of clients. So settings of other kinds are ignored, and also settings of Kafka's clients
that have no effect here. Settings that this client cannot support are rejected. An unknown key is an error that names
the closest known key.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Self

from kraft.client.core.durations import parse_iso_duration_ms
from kraft.seam import Address
from kraft.wire.records.compression import Compression

ACKS = MappingProxyType({"all": -1, "-1": -1, "1": 1, "0": 0})
INT32_MAX = (1 << 31) - 1
LONGS = frozenset(
    {
        "buffer_memory",
        "linger_ms",
        "max_block_ms",
        "metadata_max_age_ms",
        "retry_backoff_ms",
        "retry_backoff_max_ms",
    }
)
"""Settings that have 64 bits in Kafka's clients. All other numbers have 32 bits, as in requests."""
TRUTH = MappingProxyType({"true": True, "false": False})
RESET_POLICIES = ("earliest", "latest", "none")
"""Values of `auto.offset.reset`, in addition to `by_duration:` with a duration (KIP-1106)."""
GROUP_PROTOCOLS = ("classic", "consumer")
CLASSIC_ONLY = MappingProxyType(
    {
        "session_timeout_ms": "the group has group.consumer.session.timeout.ms",
        "heartbeat_interval_ms": "the group has group.consumer.heartbeat.interval.ms",
        "partition_assignment_strategy": "the coordinator assigns partitions; see group_remote_assignor",
    }
)
"""Settings of a consumer that the brokers decide in the consumer protocol, and where."""
NOT_FOR_SHARE = MappingProxyType(
    {
        "auto_offset_reset": "the group has share.auto.offset.reset",
        "auto_commit_interval_ms": "there are no offsets to commit",
        "enable_auto_commit": "there are no offsets to commit; see share_acknowledgement_mode",
        "group_instance_id": "share groups have no static members",
        "group_protocol": "share groups have a protocol of their own",
        "group_remote_assignor": "the coordinator assigns partitions",
        "heartbeat_interval_ms": "the group has share.heartbeat.interval.ms",
        "isolation_level": "the group has share.isolation.level",
        "partition_assignment_strategy": "the coordinator assigns partitions",
        "session_timeout_ms": "the group has share.session.timeout.ms",
    }
)
"""Settings of a consumer that a share consumer cannot have, and why."""
NO_EFFECT = frozenset(
    {
        "auto_include_jmx_reporter",
        "client_dns_lookup",
        "connections_max_idle_ms",
        "enable_metrics_push",
        "exclude_internal_topics",
        "key_deserializer",
        "key_serializer",
        "metadata_max_idle_ms",
        "metadata_recovery_rebootstrap_trigger_ms",
        "metadata_recovery_strategy",
        "metric_reporters",
        "metrics_num_samples",
        "metrics_recording_level",
        "metrics_sample_window_ms",
        "partitioner_adaptive_partitioning_enable",
        "partitioner_availability_timeout_ms",
        "receive_buffer_bytes",
        "reconnect_backoff_max_ms",
        "reconnect_backoff_ms",
        "retries",
        "security_providers",
        "send_buffer_bytes",
        "socket_connection_setup_timeout_max_ms",
        "socket_connection_setup_timeout_ms",
        "value_deserializer",
        "value_serializer",
    }
)
"""Settings of Kafka's clients that are ignored here."""
UNSUPPORTED = MappingProxyType(
    {
        "sasl_": "SASL is not supported yet",
        "security_protocol": "give the TLS settings as `tls`; other protocols are not supported yet",
        "ssl_": "give the TLS settings as `tls`",
        "transaction_two_phase": "two-phase commit by an outside coordinator (KIP-939) is not supported",
        "interceptor_classes": "there are no interceptors",
        "partitioner_class": "there is one partitioner; choose partitions yourself with `partition`",
    }
)
"""Reasons why this client does not support a setting, by the prefix of the setting's name."""


class ConfigError(ValueError):
    """A setting is unknown or its value is invalid. The text names the valid names or values."""


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """Settings of every client. Times are in ms, sizes in bytes."""

    bootstrap_servers: str | Sequence[str]
    client_id: str = "pykraft"
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    metadata_max_age_ms: int = 300_000
    retry_backoff_ms: int = 20
    retry_backoff_max_ms: int = 1_000

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Build the configuration from settings by name, `linger_ms` or `linger.ms`. Raise ConfigError that names a
        wrong setting."""
        known = {field.name: field for field in fields(cls)}
        values = {}
        for key, value in settings.items():
            name = key.replace(".", "_")
            if name in known:
                values[name] = _typed(key, value, str(known[name].type))
            else:
                cls._check_unknown(key, name, known)
        if not values.get("bootstrap_servers"):
            raise ConfigError("bootstrap_servers is missing: HOST:PORT[,HOST:PORT...]")
        return cls(**values)

    @classmethod
    def _check_unknown(cls, key: str, name: str, known: Iterable[str]) -> None:
        """Raise ConfigError unless this unknown setting may be ignored."""
        others = {field.name for kind in _kinds(ClientConfig) for field in fields(kind)}
        if name in NO_EFFECT or name in others:
            return
        for beginning, why in UNSUPPORTED.items():
            if name.startswith(beginning):
                raise ConfigError(f"{key} cannot be set: {why}")
        near = difflib.get_close_matches(name, [*known, *others], 1)
        raise ConfigError(f"there is no setting {key}{f'; did you mean {near[0]}?' if near else ''}")

    @property
    def addresses(self) -> list[Address]:
        return parse_bootstrap(self.bootstrap_servers)

    def _check(self, **allowed: Sequence[str]) -> None:
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise ConfigError(f"{name}={getattr(self, name)!r}: expected {', '.join(values[:-1])} or {values[-1]}")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and value < 0:
                raise ConfigError(f"{field.name}={value}: expected 0 or more")
            if field.type == "int" and value > INT32_MAX and field.name not in LONGS:
                raise ConfigError(f"{field.name}={value}: expected at most {INT32_MAX}")


@dataclass(frozen=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """Kafka's producer settings. `linger_ms` is 0 here (Kafka: 5), so the first batches are sent at once. Once the
    maximum number of requests is in flight, records gather in the next batches."""

    client_id: str = "pykraft-producer"
    acks: str | int = "all"
    enable_idempotence: bool | None = None
    max_in_flight_requests_per_connection: int = 5
    compression_type: str = "none"
    compression_level: int | None = None
    linger_ms: int = 0
    batch_size: int = 16_384
    buffer_memory: int = 33_554_432
    max_request_size: int = 1_048_576
    max_block_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        if str(self.acks) not in ACKS:
            raise ConfigError(f"acks={self.acks!r}: expected all, 1 or 0")
        if self.enable_idempotence and self.required_acks != -1:
            raise ConfigError(f"enable_idempotence needs acks=all, not {self.acks!r}")
        if self.transactional_id == "":
            raise ConfigError(
                "transactional_id is empty: name the producer, or leave it out for one without transactions"
            )
        if self.transactional_id is not None and not self.is_idempotent:
            raise ConfigError("transactional_id needs acks=all and enable_idempotence=true, which are the defaults")
        if self.transaction_timeout_ms < 1:
            raise ConfigError(f"transaction_timeout_ms={self.transaction_timeout_ms}: expected 1 or more")
        self._check(compression_type=[codec.name.lower() for codec in Compression])
        if not 1 <= self.max_in_flight_requests_per_connection <= (5 if self.is_idempotent else 2**31):
            raise ConfigError(
                f"max_in_flight_requests_per_connection={self.max_in_flight_requests_per_connection}: expected 1 to 5, "
                "which is what a broker remembers of an idempotent producer"
            )

    @property
    def handover_ms(self) -> int:
        """Maximum milliseconds for which `enqueue` waits for buffer space and for the topic's metadata."""
        return min(self.max_block_ms, self.delivery_timeout_ms)

    @property
    def required_acks(self) -> int:
        return ACKS[str(self.acks)]

    @property
    def is_idempotent(self) -> bool:
        return self.required_acks == -1 if self.enable_idempotence is None else self.enable_idempotence

    @property
    def compression(self) -> Compression:
        return Compression.named(self.compression_type)


@dataclass(frozen=True, kw_only=True)
class GroupReaderConfig(ClientConfig):
    """Settings that a consumer and a share consumer have in common."""

    client_rack: str = ""
    group_id: str | None = None
    max_poll_interval_ms: int = 300_000
    max_poll_records: int = 500
    check_crcs: bool = True
    allow_auto_create_topics: bool = True
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800


@dataclass(frozen=True, kw_only=True)
class ShareConsumerConfig(GroupReaderConfig):
    """Kafka's share consumer settings."""

    client_id: str = "pykraft-share-consumer"
    share_acknowledgement_mode: str = "implicit"
    share_acquire_mode: str = "batch_optimized"

    def __post_init__(self) -> None:
        self._check(share_acknowledgement_mode=("implicit", "explicit"))
        self._check(share_acquire_mode=("batch_optimized", "record_limit"))
        if not self.group_id:
            raise ConfigError("group_id is missing: a share consumer reads as a member of a share group")
        if self.max_poll_records < 1:
            raise ConfigError(f"max_poll_records={self.max_poll_records}: expected 1 or more")

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Build the configuration like `ClientConfig.of`. Reject settings of other consumers, which the share group
        decides."""
        for key in settings:
            why = NOT_FOR_SHARE.get(key.replace(".", "_"))
            if why is not None:
                raise ConfigError(f"{key} cannot be set for a share consumer: {why}")
        return super().of(settings)

    @property
    def is_explicit(self) -> bool:
        """Whether the application acknowledges each record itself."""
        return self.share_acknowledgement_mode == "explicit"

    @property
    def is_record_limit(self) -> bool:
        """Whether no record more than `max.poll.records` is acquired (KIP-1206)."""
        return self.share_acquire_mode == "record_limit"


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig(GroupReaderConfig):
    """Kafka's consumer settings."""

    client_id: str = "pykraft-consumer"
    group_instance_id: str | None = None
    group_protocol: str = "classic"
    group_remote_assignor: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    partition_assignment_strategy: str | Sequence[Any] = ("range", "cooperative-sticky")
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    auto_offset_reset: str = "latest"
    isolation_level: str = "read_uncommitted"
    max_partition_fetch_bytes: int = 1_048_576

    def __post_init__(self) -> None:
        self._check(isolation_level=("read_uncommitted", "read_committed"))
        if self.auto_offset_reset not in RESET_POLICIES and self.reset_duration_ms is None:
            raise ConfigError(
                f"auto_offset_reset={self.auto_offset_reset!r}: expected {', '.join(RESET_POLICIES)}, or by_duration: "
                "and a duration of ISO 8601 that is not negative, such as by_duration:PT1H30M"
            )
        self._check(group_protocol=GROUP_PROTOCOLS)
        if self.group_remote_assignor is not None and not self.is_consumer_protocol:
            raise ConfigError("group_remote_assignor needs group_protocol=consumer; see partition_assignment_strategy")
        if self.group_id == "":
            raise ConfigError("group_id is empty: name a group, or leave it out to read without one")
        if self.group_instance_id is not None and self.group_id is None:
            raise ConfigError("group_instance_id needs a group_id")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms}: expected less than "
                f"session_timeout_ms={self.session_timeout_ms}"
            )

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Build the configuration like `ClientConfig.of`. Reject settings of the classic protocol for a consumer that
        uses the other one."""
        config = super().of(settings)
        for key in settings:
            name = key.replace(".", "_")
            if config.is_consumer_protocol and name in CLASSIC_ONLY:
                raise ConfigError(f"{key} cannot be set with group_protocol=consumer: {CLASSIC_ONLY[name]}")
        return config

    @property
    def is_consumer_protocol(self) -> bool:
        """Whether this consumer joins groups by the protocol of KIP-848."""
        return self.group_protocol == "consumer"

    @property
    def reset_duration_ms(self) -> int | None:
        """Duration in `auto.offset.reset`, in ms; None if the setting has another value."""
        policy, _, duration = str(self.auto_offset_reset).partition(":")
        return parse_iso_duration_ms(duration) if policy == "by_duration" else None

    @property
    def read_committed(self) -> bool:
        return self.isolation_level == "read_committed"

    @property
    def assignors(self) -> list[Any]:
        """Assignors, or their names, in order of preference."""
        listed = self.partition_assignment_strategy
        return [name.strip() for name in listed.split(",")] if isinstance(listed, str) else list(listed)


def _kinds(config: type[ClientConfig]) -> Iterator[type[ClientConfig]]:
    """Yield every kind of configuration below this one."""
    for kind in config.__subclasses__():
        yield kind
        yield from _kinds(kind)


def _typed(key: str, value: Any, wanted: str) -> Any:
    """Convert `value` to the type of the field. Text is parsed as a number or a boolean where the field requires it."""
    if wanted.startswith(("int", "bool")) and isinstance(value, str):
        text = value.strip().lower()
        if wanted.startswith("bool") and text in TRUTH:
            return TRUTH[text]
        if wanted.startswith("int") and text.removeprefix("-").isdecimal():
            return int(text)
        raise ConfigError(f"{key}={value}: expected {'true or false' if wanted.startswith('bool') else 'a number'}")
    if wanted.startswith("int") and value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ConfigError(f"{key}={value!r}: expected a whole number")
    return value


def parse_bootstrap(servers: str | Sequence[str]) -> list[Address]:
    """Parse `"host:port,host:port"` or a sequence of such entries. Raise ConfigError that names an entry that is not
    host:port."""
    entries = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = []
    for entry in (text.strip() for text in entries):
        host, colon, port = entry.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(f"bootstrap server {entry!r} is not HOST:PORT (for example localhost:9092)")
        addresses.append(Address(host.strip("[]"), int(port)))
    if not addresses:
        raise ConfigError("no bootstrap servers were given: expected HOST:PORT[,HOST:PORT...]")
    return addresses
