"""Histories of settings of topics and brokers: clients write the settings, and the settings are read from the committed
metadata.

They are read right after each acknowledgement, and at the end. An acknowledged value must be there until another value
replaces it (M11).

A broker forwards a request until a controller answers, so it may be carried out twice, and a request without an answer
may have been carried out. Each handling of a change by an active controller, beyond the acknowledged one, counts as a
write with an unknown outcome. Deleting a topic removes its settings.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass

from kraft.image import ConfigResourceType
from kraft.sim.check.histories.linearizability import Call
from kraft.sim.check.histories.metadata_histories import HistoryChecks, SettingHistory
from kraft.sim.check.histories.metadata_models import ABSENT, ReadRegister, WriteRegister
from kraft.sim.cluster.altered_settings import SettingKey
from kraft.sim.cluster.cluster import SimCluster

METADATA_READER = "the committed metadata"


@dataclass(slots=True)
class SettingsRequest:
    """Changes of settings in one request; `returned_ns` is None until it is acknowledged."""

    client: str
    values: Mapping[SettingKey, str | None]
    called_ns: int
    returned_ns: int | None = None


@dataclass(slots=True)
class Removal:
    """A request to delete a topic."""

    client: str
    topic: str
    called_ns: int
    returned_ns: int | None = None


class SettingsLedger:
    """Records requested and acknowledged changes, and reads the committed values."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._asked: list[SettingsRequest] = []
        self._removals: list[Removal] = []
        self._reads: list[tuple[SettingKey, int, Hashable]] = []

    @property
    def _now_ns(self) -> int:
        return self._cluster.world.now_ns

    def ask(
        self, client: str, resource_type: ConfigResourceType, resource: str, values: Mapping[str, str | None]
    ) -> SettingsRequest:
        """Record a request that is about to be sent, which sets these values (None removes a value)."""
        named = {SettingKey(int(resource_type), resource, name): value for name, value in values.items()}
        self._asked.append(SettingsRequest(client, named, self._now_ns))
        return self._asked[-1]

    def delete(self, client: str, topic: str) -> Removal:
        """Record a request that is about to be sent, which deletes this topic."""
        self._removals.append(Removal(client, topic, self._now_ns))
        return self._removals[-1]

    def acknowledge(self, noted: SettingsRequest | Removal) -> None:
        """Record an acknowledgement: the change is done, and must be visible at once."""
        noted.returned_ns = self._now_ns
        if isinstance(noted, SettingsRequest):
            self._read(noted.values)

    def read_all(self, is_there: Callable[[SettingKey], bool]) -> None:
        """Read every setting that was ever requested, of the topics and brokers for which `is_there` returns True."""
        self._read({setting: None for setting in self._settings() if is_there(setting)})

    def _read(self, settings: Mapping[SettingKey, object]) -> None:
        for setting in settings:
            values = self._cluster.image.configs_of(ConfigResourceType(setting.resource_type), setting.resource)
            self._reads.append((setting, self._now_ns + 1, values.get(setting.name, ABSENT)))

    def _settings(self) -> dict[SettingKey, None]:
        return {setting: None for asked in self._asked for setting in asked.values}

    def judge(self, checks: HistoryChecks) -> None:
        """Check the history of each setting for linearizability."""
        for setting in self._settings():
            checks.observe(SettingHistory(setting, tuple(self._calls(setting))), self._now_ns // 1_000_000)

    def _calls(self, setting: SettingKey) -> Iterator[Call]:
        unanswered = {
            change: handled for change, handled in self._cluster.watch.altered.items() if change[0] == setting
        }
        began: dict[str | None, int] = {}
        for asked in self._asked:
            if setting in asked.values:
                value = asked.values[setting]
                began.setdefault(value, asked.called_ns)
                if asked.returned_ns is not None:
                    unanswered[setting, value] = unanswered.get((setting, value), 0) - 1
                    yield Call(asked.client, asked.called_ns, asked.returned_ns, _write(value), True)
        for (_, value), count in unanswered.items():
            for _ in range(count if value in began else 0):
                yield Call("unknown", began[value], None, _write(value))
        for removal in self._removals:
            if setting.resource_type == ConfigResourceType.TOPIC and setting.resource == removal.topic:
                told = None if removal.returned_ns is None else True
                yield Call(removal.client, removal.called_ns, removal.returned_ns, _write(None), told)
        for read, at_ns, stands in self._reads:
            if read == setting:
                yield Call(METADATA_READER, at_ns, at_ns, ReadRegister(), stands)


def _write(value: str | None) -> WriteRegister:
    return WriteRegister(ABSENT if value is None else value)
