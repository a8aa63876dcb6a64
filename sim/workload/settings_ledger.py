"""What clients of a run were told of settings of topics and brokers: each setting is a register that they write, and
that is read from the committed metadata, right after each acknowledgement and in the end. Whatever was acknowledged
must stand there, until another value does (M11).

A broker hands a request on until a controller answers, so it may be carried out twice, and one without an answer may
have been carried out: each time that an active controller handled a change beyond those that were acknowledged is a
write of which nobody knows what came. A topic that is deleted takes its settings along.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass

from kraft.image import ConfigResourceType
from kraft.sim.check.histories.linearizability import Call
from kraft.sim.check.histories.metadata_histories import HistoryChecks, SettingHistory
from kraft.sim.check.histories.metadata_models import ABSENT, Read, Write
from kraft.sim.cluster.altered_settings import Setting
from kraft.sim.cluster.cluster import SimCluster

EYE = "the committed metadata"


@dataclass(slots=True)
class Asked:
    """What one request does to settings; `returned_ns` is None until it is acknowledged."""

    client: str
    values: Mapping[Setting, str | None]
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
    """Notes what was asked and what was acknowledged, and reads what is committed."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._asked: list[Asked] = []
        self._removals: list[Removal] = []
        self._reads: list[tuple[Setting, int, Hashable]] = []

    @property
    def _now_ns(self) -> int:
        return self._cluster.world.now_ns

    def ask(
        self, client: str, resource_type: ConfigResourceType, resource: str, values: Mapping[str, str | None]
    ) -> Asked:
        """A request is about to be sent that sets these (None: removes it)."""
        named = {Setting(int(resource_type), resource, name): value for name, value in values.items()}
        self._asked.append(Asked(client, named, self._now_ns))
        return self._asked[-1]

    def delete(self, client: str, topic: str) -> Removal:
        """A request is about to be sent that deletes this topic."""
        self._removals.append(Removal(client, topic, self._now_ns))
        return self._removals[-1]

    def acknowledge(self, noted: Asked | Removal) -> None:
        """It was answered: it is done, and must be seen at once."""
        noted.returned_ns = self._now_ns
        if isinstance(noted, Asked):
            self._read(noted.values)

    def read_all(self, is_there: Callable[[Setting], bool]) -> None:
        """Every setting that was ever asked for, of what `is_there`."""
        self._read({setting: None for setting in self._settings() if is_there(setting)})

    def _read(self, settings: Mapping[Setting, object]) -> None:
        for setting in settings:
            values = self._cluster.image.configs_of(ConfigResourceType(setting.resource_type), setting.resource)
            self._reads.append((setting, self._now_ns + 1, values.get(setting.name, ABSENT)))

    def _settings(self) -> dict[Setting, None]:
        return {setting: None for asked in self._asked for setting in asked.values}

    def judge(self, checks: HistoryChecks) -> None:
        """The history of each."""
        for setting in self._settings():
            checks.observe(SettingHistory(setting, tuple(self._calls(setting))), self._now_ns // 1_000_000)

    def _calls(self, setting: Setting) -> Iterator[Call]:
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
                yield Call("nobody knows", began[value], None, _write(value))
        for removal in self._removals:
            if setting.resource_type == ConfigResourceType.TOPIC and setting.resource == removal.topic:
                told = None if removal.returned_ns is None else True
                yield Call(removal.client, removal.called_ns, removal.returned_ns, _write(None), told)
        for read, at_ns, stands in self._reads:
            if read == setting:
                yield Call(EYE, at_ns, at_ns, Read(), stands)


def _write(value: str | None) -> Write:
    return Write(ABSENT if value is None else value)
