"""Validators of values. Each returns None for a valid value, else the words that complete the sentence "it …". The
docstrings of the validators are shown in the documentation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from kraft.config.key import ConfigValue, Validator

CONVERSION = (
    "convert a JKS or PKCS12 store with `keytool -importkeystore -srckeystore STORE -destkeystore store.p12 "
    "-deststoretype PKCS12` and then `openssl pkcs12 -in store.p12 -out store.pem`"
)


def at_least(minimum: int) -> Validator:
    """A number of at least `minimum`."""

    def check(value: ConfigValue) -> str | None:
        good = isinstance(value, int | float) and value >= minimum
        return None if good else f"must be at least {minimum}"

    check.__doc__ = f"at least {minimum}"
    return check


def between(minimum: float, maximum: float) -> Validator:
    """A number in [minimum, maximum]."""

    def check(value: ConfigValue) -> str | None:
        good = isinstance(value, int | float) and minimum <= value <= maximum
        return None if good else f"must lie between {minimum} and {maximum}"

    check.__doc__ = f"{minimum} to {maximum}"
    return check


def gzip_level(value: ConfigValue) -> str | None:
    """1 to 9, or -1"""
    good = isinstance(value, int) and (1 <= value <= 9 or value == -1)
    return None if good else "must lie between 1 and 9, or be -1"


def one_of(*words: str, any_case: bool = False) -> Validator:
    """One of these words."""

    def check(value: ConfigValue) -> str | None:
        word = value.upper() if any_case and isinstance(value, str) else value
        return None if word in words else f"must be one of {_listed(words)}"

    check.__doc__ = _listed(words)
    return check


GROUP_ASSIGNORS: Mapping[str, str] = MappingProxyType(
    {
        "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
        "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
    }
)
"""Kafka's classes of assignors → their names. A file for Kafka may name either."""


def group_assignors(value: ConfigValue) -> str | None:
    """list of uniform, range"""
    names = [GROUP_ASSIGNORS.get(name, name) for name in value] if isinstance(value, tuple) else []
    good = names and len(set(names)) == len(names) and set(names) <= {*GROUP_ASSIGNORS.values()}
    return None if good else "must be a list of uniform, range, each at most once; other classes cannot run here"


_NOT_NEGATIVE_DURATION = re.compile(
    r"P(?=[0-9T])([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?([0-9]+([.,][0-9]{0,9})?S)?)?", re.IGNORECASE
)


def share_offset_reset(value: ConfigValue) -> str | None:
    """latest, earliest, or by_duration: and a duration such as PT1H30M"""
    policy, colon, duration = str(value).partition(":")
    good = value in ("latest", "earliest") or (
        policy == "by_duration" and colon and _NOT_NEGATIVE_DURATION.fullmatch(duration)
    )
    return None if good else "must be latest, earliest, or by_duration: and a duration such as by_duration:PT1H30M"


def each_of(*words: str) -> Validator:
    """A list with only these words as members."""

    def check(value: ConfigValue) -> str | None:
        good = isinstance(value, tuple) and all(word in words for word in value)
        return None if good else f"must be a list of {_listed(words)}"

    check.__doc__ = f"list of {_listed(words)}"
    return check


def host_and_port(value: ConfigValue) -> str | None:
    """empty, or host:port"""
    host, colon, port = str(value or "").strip().rpartition(":")
    good = not value or (colon and port.isascii() and port.isdigit() and int(port) <= 65535)
    is_bare_ipv6 = ":" in host and not (host.startswith("[") and host.endswith("]"))
    return None if good and not is_bare_ipv6 else "must be host:port, as 127.0.0.1:9404 or [::1]:9404"


def bearer_token(value: ConfigValue) -> str | None:
    """at least 16 printable ASCII characters, without spaces"""
    text = "" if value is None else str(value)
    good = value is None or (len(text) >= 16 and all("!" <= letter <= "~" for letter in text))
    return None if good else "must have at least 16 printable ASCII characters, without spaces"


def throttled_replicas(value: ConfigValue) -> str | None:
    """`*`, or a list of partition:broker"""
    if value == ("*",):
        return None
    good = isinstance(value, tuple) and all(_is_pair(entry) for entry in value)
    return None if good else "must be * or a list of partition:broker, for example 0:1,0:2"


def host_counts(value: ConfigValue) -> str | None:
    """list of host:count"""
    entries = [entry.strip() for entry in str(value or "").split(",") if entry.strip()]
    good = all(host and count.isdigit() for host, _, count in (entry.rpartition(":") for entry in entries))
    return None if good else "must be a list of host:count, for example 10.0.0.7:20,localhost:100"


def pem_store(value: ConfigValue) -> str | None:
    """PEM"""
    if value == "PEM":
        return None
    return f"must be PEM; {CONVERSION}"


def _is_pair(entry: str) -> bool:
    partition, colon, broker = entry.partition(":")
    return bool(colon) and partition.isdigit() and broker.isdigit()


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(word or "(empty)" for word in words)
