"""Client settings by Kafka's names: which settings exist, and which of them apply to a producer or a consumer.

A setting on the command line must be one that pykraft's client has. A setting in a file may be meant for another tool:
settings in a file that the client does not have are named in one warning and have no effect.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path

from kraft.client.core.configs import ClientConfig, ConsumerConfig, ProducerConfig, ShareConsumerConfig
from kraft.deploy.cli.output import EXIT_USAGE, CommandFailed, warn
from kraft.deploy.cli.tls_settings import is_connection_setting

GROUP_ID = "group.id"


def settings_of(config: type[ClientConfig], settings: Mapping[str, str]) -> dict[str, str]:
    """Return the client settings that a producer or a consumer has."""
    known = _names(config)
    return {name: value for name, value in settings.items() if name in known}


def refuse_unknown(names: Iterable[str]) -> None:
    """Raise CommandFailed for a setting that neither a producer nor a consumer has, and suggest the nearest name."""
    for name in names:
        if name == GROUP_ID:  # settings in a file may be meant for other tools; they must not turn on commits here
            raise CommandFailed("-X group.id: give kraft consume --group", code=EXIT_USAGE)
        if not _is_known(name):
            near = difflib.get_close_matches(name, known_names(), 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise CommandFailed(f"-X {name}: there is no such client setting{hint}", code=EXIT_USAGE)


def drop_unknown(settings: dict[str, str], path: Path) -> None:
    """Remove the settings that pykraft's client does not have, and print one warning that names them."""
    unknown = sorted(name for name in settings if not _is_known(name))
    if unknown:
        warn(f"{path}: no effect here: {', '.join(unknown)}")
    for name in unknown:
        del settings[name]


def _is_known(name: str) -> bool:
    return is_connection_setting(name) or name in known_names()


def known_names() -> set[str]:
    """Return the names of all settings of a producer, a consumer or a share consumer."""
    return _names(ProducerConfig) | _names(ConsumerConfig) | _names(ShareConsumerConfig)


def _names(config: type[ClientConfig]) -> set[str]:
    return {field.name.replace("_", ".") for field in fields(config)}
