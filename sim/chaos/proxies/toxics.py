"""Pure: the toxics of toxiproxy for the conditions of a direction, and the changes from one set of toxics to another.

The changes keep three rules, which follow from how toxiproxy passes bytes (its link.go):
- A toxic that holds bytes back is never removed: it is set to its neutral form. Removing it delivers the held bytes
  chunk by chunk while the proxy is locked, with 5 s for each chunk whose reader is gone. If the sender has closed the
  connection in the meantime, removing several toxics loses held bytes.
- Adding a toxic makes the last toxic of the chain pass on its current chunk. While a direction hangs, its other toxics
  are therefore left unchanged until the hang ends.
- Closes are held back before bytes are, and released before bytes, so a connection that closes delivers its bytes
  first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from kraft.sim.chaos.proxies.errors import ToxiproxyError

ATTRIBUTES: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "latency": {"latency": 0, "jitter": 0},
        "bandwidth": {"rate": 0},
        "slow_close": {"delay": 0},
        "timeout": {"timeout": 0},
        "reset_peer": {"timeout": 0},
        "slicer": {"average_size": 1, "size_variation": 0, "delay": 0},
        "limit_data": {"bytes": 0},
    }
)
"""Type of toxic → its attributes and their defaults. Times are in ms, the slicer's delay in µs, rate in 1000 B/s."""

HELD_MS = 30 * 24 * 3_600_000
"""Time in ms that is longer than any run: bytes wait until the toxic is changed."""
RATE_UNIT = 1000
"""Bytes per second that one unit of `rate` in a bandwidth toxic stands for."""


class ConnectionPolicy(Enum):
    """Treatment of the connections between two ends, whichever end dials."""

    OPEN = "open"
    REFUSE = "refuse"
    """The connections are closed, and dials are refused."""
    RESET = "reset"
    """The connections are closed. Dials succeed; a connection is reset when its first bytes arrive."""


class HangMode(Enum):
    """Treatment of the bytes that are sent while a direction hangs."""

    HOLD = "hold"
    """The bytes arrive when the hang ends."""
    DROP = "drop"
    """The bytes are lost, and every connection on which the direction hung is closed when the hang ends."""


@dataclass(frozen=True, slots=True)
class Toxic:
    """One of toxiproxy's toxics. Attributes that are not given have their defaults (`ATTRIBUTES`). `toxicity` is the
    probability, 0 to 1, that it acts on a connection. `stream` restricts a toxic of a direction to connections dialled
    by the direction's source ("upstream") or its target ("downstream"); empty: both. Raises ToxiproxyError with the
    valid names."""

    type: str
    attributes: Mapping[str, int] = field(default_factory=dict)
    toxicity: float = 1.0
    stream: str = ""

    def __post_init__(self) -> None:
        known = ATTRIBUTES.get(self.type)
        if known is None:
            raise ToxiproxyError(f"there is no toxic {self.type!r}: toxics are {', '.join(ATTRIBUTES)}")
        for name, value in self.attributes.items():
            if name not in known:
                raise ToxiproxyError(f"the toxic {self.type} has no attribute {name!r}: it has {', '.join(known)}")
            if not isinstance(value, int) or value < 0:
                raise ToxiproxyError(f"{name} of the toxic {self.type} is a whole number from 0 up, not {value!r}")
        if not 0 <= self.toxicity <= 1:
            raise ToxiproxyError(f"toxicity is a probability from 0 to 1, not {self.toxicity!r}")
        if self.stream not in ("", "upstream", "downstream"):
            raise ToxiproxyError(f"a stream is upstream, downstream or empty (both), not {self.stream!r}")
        object.__setattr__(self, "attributes", {**known, **self.attributes})
        self._check_slices()

    def _check_slices(self) -> None:
        if self.type != "slicer":
            return
        average, variation = self.attributes["average_size"], self.attributes["size_variation"]
        if not 0 <= variation < average:
            raise ToxiproxyError(f"a slicer needs size_variation < average_size, not {variation} and {average}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteConditions:
    """Conditions of the bytes that flow from one end to another, whichever end dialled. `latency_ms` is added, plus up
    to `jitter_ms`. `bytes_per_second` is rounded to thousands from 1000 up; below that, bytes pass one by one. Each
    connection ends when `bytes_max` bytes have passed since the limit was set. 0: no limit. While a direction hangs, a
    close of the connection does not pass either."""

    is_hung: bool = False
    manner: HangMode = HangMode.HOLD
    latency_ms: int = 0
    jitter_ms: int = 0
    bytes_per_second: int = 0
    bytes_max: int = 0
    toxics: tuple[Toxic, ...] = ()

    def __post_init__(self) -> None:
        if min(self.latency_ms, self.jitter_ms, self.bytes_per_second, self.bytes_max) < 0:
            raise ToxiproxyError("latency, jitter, bytes per second and bytes of a direction are 0 or more")


CLEAR = ByteConditions()

Toxics = Mapping[str, Toxic]
"""The toxics of one stream of one proxy, by name."""

CLOSE, DROP, LATENCY, RESET = "close", "drop", "latency", "reset"
"""Names of toxics. CLOSE, DROP and LATENCY form a hang. When a hang begins or ends, they are changed in this order."""
_NEUTRAL = MappingProxyType({toxic.type: toxic for toxic in (Toxic("slow_close"), Toxic("latency"))})
"""Type → the neutral form of a toxic that holds back bytes or closes. A toxic is set to this form instead of being
removed."""
AT_REST: Mapping[str, Toxic] = MappingProxyType({CLOSE: _NEUTRAL["slow_close"], LATENCY: _NEUTRAL["latency"]})
"""The toxics that every stream has from the begin; they do nothing until a hang needs them."""
_HELD = Toxic("latency", {"latency": HELD_MS})
_CLOSE_HELD = Toxic("slow_close", {"delay": HELD_MS})


def toxics_of(way: ByteConditions, policy: ConnectionPolicy, stream: str) -> dict[str, Toxic]:
    """Return the toxics of a direction on a stream ("upstream" if the direction's source dialled)."""
    found = {name: toxic for name, toxic in _named(way.toxics) if toxic.stream in ("", stream)}
    if way.bytes_per_second:
        rate = _rate(way.bytes_per_second)
        found[f"rate-{rate.type}"] = rate
    if way.bytes_max:
        found["limit"] = Toxic("limit_data", {"bytes": way.bytes_max})
    if policy is ConnectionPolicy.RESET:
        found[RESET] = Toxic("reset_peer")
    if way.latency_ms or way.jitter_ms:
        found[LATENCY] = _latency(way.latency_ms, way.jitter_ms)
    if way.is_hung:
        found[CLOSE] = _CLOSE_HELD
        if way.manner is HangMode.DROP:
            found[DROP] = Toxic("timeout")
        else:
            found[LATENCY] = _HELD
    return found


def _named(toxics: Iterable[Toxic]) -> Iterator[tuple[str, Toxic]]:
    """Yield each toxic with its name. The number in a name counts only toxics of the same type. So names stay the same
    when toxics of another type are removed."""
    counts: dict[str, int] = {}
    for toxic in toxics:
        number = counts[toxic.type] = counts.get(toxic.type, -1) + 1
        yield f"{number}-{toxic.type}", toxic


def _latency(latency_ms: int, jitter_ms: int) -> Toxic:
    """Return a latency toxic. toxiproxy's jitter is added or subtracted; a direction's jitter is only added."""
    return Toxic("latency", {"latency": latency_ms + (jitter_ms + 1) // 2, "jitter": jitter_ms // 2})


def _rate(bytes_per_second: int) -> Toxic:
    """Return a toxic that limits the rate. toxiproxy's bandwidth has no rate below 1000 bytes per second; its slicer
    can pause after each byte."""
    if bytes_per_second < RATE_UNIT:
        return Toxic("slicer", {"average_size": 1, "delay": 1_000_000 // bytes_per_second})
    return Toxic("bandwidth", {"rate": (bytes_per_second + RATE_UNIT // 2) // RATE_UNIT})


def is_held(toxics: Toxics) -> bool:
    """Return whether these toxics hold all bytes back, or drop them."""
    return DROP in toxics or toxics.get(LATENCY) == _HELD


class ChangeKind(Enum):
    ADD = "add"
    UPDATE = "update"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class ToxicChange:
    """One change of a stream's toxics. `toxic` is the toxic that is added, changed or removed."""

    kind: ChangeKind
    name: str
    toxic: Toxic


def changes_between(present: Toxics, wanted: Toxics, *, has_connections: bool = True) -> list[ToxicChange]:
    """Return the ordered changes from one set of toxics to another. See the module for the rules. Without connections
    no bytes are held, so toxics may be changed during a hang too."""
    hang = [step for name in (CLOSE, DROP, LATENCY) for step in _changes_of(name, present, wanted)]
    others = [
        step
        for name in dict.fromkeys((*present, *wanted))
        if name not in (CLOSE, DROP, LATENCY)
        for step in _changes_of(name, present, wanted)
    ]
    if not is_held(wanted):
        return hang + others
    if is_held(present) and has_connections:
        return hang
    return others + hang


def _changes_of(name: str, present: Toxics, wanted: Toxics) -> list[ToxicChange]:
    before, after = present.get(name), wanted.get(name)
    if before is not None and after is None:
        after = _NEUTRAL.get(before.type)
    if _same(before, after):
        return []
    if after is None:
        assert before is not None
        return [ToxicChange(ChangeKind.REMOVE, name, before)]
    return [ToxicChange(ChangeKind.ADD if before is None else ChangeKind.UPDATE, name, after)]


def _same(one: Toxic | None, other: Toxic | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.attributes, one.toxicity) == (other.attributes, other.toxicity)


def after_change(present: Toxics, step: ToxicChange) -> dict[str, Toxic]:
    """Return the toxics of a stream after a change."""
    rest = {name: toxic for name, toxic in present.items() if name != step.name}
    if step.kind is ChangeKind.REMOVE:
        return rest
    return {**present, step.name: step.toxic}
