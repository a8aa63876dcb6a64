"""Reply policy: deliberate faults in replies to chosen requests, to test clients and peers.

A rule names an API (or any), and may be limited to a client id, a topic and a partition. The first matching rule
applies, at most `times` times. Its action replaces the handling of the request or, with `after`, is applied to the
response once the request has been handled. A client cannot distinguish a lost request from a lost response, and must
handle both.

Without rules nothing is changed. Pure: the actions are carried out by `kraft.node.reply_faults`.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.error_answers import error_problem
from kraft.wire.messages.named_partitions import NamedPartition
from kraft.wire.rpc import InternalKey

DELAY_MS_MAX = 3_600_000

ONLOOKER_CLIENT_ID = "kraft-onlooker"
"""Client id to which rules never apply: such a client can observe while rules are in force, without using them up."""


class ReplyAction(Enum):
    """Effect of a rule on a request or its response."""

    ERROR = "error"
    """Answer the request with the rule's error."""
    DROP = "drop"
    """Never answer the request; this also blocks all later responses on its connection."""
    DELAY = "delay"
    """Delay the request by the rule's delay, and with it everything after it on its connection."""
    CLOSE = "close"
    """Close the connection of the request."""


class BadRule(ValueError):
    """An invalid rule; the text gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRule:
    """One rule. None in a limiting field means: any. Raises BadRule if the rule could never apply."""

    api_key: int | None
    action: ReplyAction
    error: ErrorCode = ErrorCode.NONE
    delay_ms: int = 0
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    times: int | None = None
    after: bool = False

    def __post_init__(self) -> None:
        if self.action is ReplyAction.ERROR:
            if self.error is ErrorCode.NONE:
                raise BadRule("an answer with an error needs the error's name")
            if self.api_key is None:
                raise BadRule("an answer with an error needs the API: their answers differ")
            problem = error_problem(self.api_key)
            if problem is not None:
                raise BadRule(problem)
        if self.action is ReplyAction.DELAY and not 0 < self.delay_ms <= DELAY_MS_MAX:
            raise BadRule(f"a delay is 1 to {DELAY_MS_MAX} ms, not {self.delay_ms}")
        if self.partition is not None and self.topic is None:
            raise BadRule("a partition needs its topic")
        if self.times is not None and self.times < 1:
            raise BadRule(f"a rule applies at least once, not {self.times} times")

    @property
    def needs_partitions(self) -> bool:
        """Whether the rule depends on the partitions of a request."""
        return self.topic is not None


class ReplyPolicy:
    """The rules of one node, in the order in which they were added. Used on the event loop only."""

    def __init__(self) -> None:
        self.rules: dict[int, ReplyRule] = {}
        self.applied: dict[int, int] = {}
        """Number of times that each rule has been applied, including used-up and removed rules."""
        self._numbers = itertools.count(1)

    def add(self, rule: ReplyRule) -> int:
        """Apply this rule from now on; return its number."""
        number = next(self._numbers)
        self.rules[number] = rule
        self.applied[number] = 0
        return number

    def remove(self, number: int) -> bool:
        """Remove a rule; False if there is none with this number."""
        return self.rules.pop(number, None) is not None

    def clear(self) -> None:
        """Remove all rules."""
        self.rules.clear()

    def decide(self, api_key: int, client_id: str, named: Callable[[], Collection[NamedPartition]]) -> ReplyRule | None:
        """Return the rule that applies to this request and count it; None if no rule applies. `named` is called only if
        a rule depends on the request's partitions."""
        if client_id == ONLOOKER_CLIENT_ID:
            return None
        for number, rule in self.rules.items():
            if rule.api_key is not None and rule.api_key != api_key:
                continue
            if rule.client_id is not None and rule.client_id != client_id:
                continue
            if rule.needs_partitions and not any(_is_meant(rule, one) for one in named()):
                continue
            self.applied[number] += 1
            if rule.times is not None and self.applied[number] >= rule.times:
                del self.rules[number]
            return rule
        return None


def _is_meant(rule: ReplyRule, one: NamedPartition) -> bool:
    return one.topic == rule.topic and rule.partition in (None, one.partition)


# rules as text


def api_name(api_key: int) -> str:
    """Return the name of an API: `Produce`, `ListOffsets`; `InternalVote` for the internal one."""
    if api_key in InternalKey._value2member_map_:
        return "Internal" + _camel(InternalKey(api_key).name)
    return _camel(ApiKey(api_key).name)


def api_key_of(name: str) -> int:
    """Return the key of an API by name (in any spelling: Produce, LIST_OFFSETS, list-offsets) or number. Raises BadRule
    if unknown."""
    wanted = name.replace("_", "").replace("-", "").lower()
    for key in (*ApiKey, *InternalKey):
        if wanted in (api_name(key).lower(), str(int(key))):
            return int(key)
    names = [api_name(int(key)) for key in ApiKey]
    hint = _near(name, names) or "; names are those of Kafka's protocol, such as Produce or ListOffsets"
    raise BadRule(f"there is no API {name!r}{hint}")


def _near(name: str, known: Iterable[str]) -> str:
    spelled = {one.lower(): one for one in known}
    nearest = difflib.get_close_matches(name.lower(), spelled, 1)
    return f"; did you mean {spelled[nearest[0]]}?" if nearest else ""


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def rule_from(fields: Mapping[str, Any]) -> ReplyRule:
    """Create a rule from plain values: `api`, `action`, `error` (its name), `delay_ms`, `topic`, `partition`,
    `client_id`, `times`, `after`. Raises BadRule if they are invalid."""
    known = {"api", "action", "error", "delay_ms", "topic", "partition", "client_id", "times", "after"}
    unknown = fields.keys() - known
    if unknown:
        raise BadRule(f"a rule has no {', '.join(sorted(unknown))}; it has {', '.join(sorted(known))}")
    api, error = fields.get("api"), fields.get("error")
    api_key = None if api is None else api_key_of(str(api))
    try:
        action = ReplyAction(fields.get("action"))
        code = ErrorCode.NONE if error is None else ErrorCode[str(error)]
    except ValueError:
        actions = ", ".join(action.value for action in ReplyAction)
        raise BadRule(f"{fields.get('action')!r} is no action; there are {actions}") from None
    except KeyError:
        names = [name for name in ErrorCode.__members__ if name != ErrorCode.NONE.name]
        hint = _near(str(error), names) or ": give one of Kafka's names, as REQUEST_TIMED_OUT"
        raise BadRule(f"{error!r} is no error code{hint}") from None
    return ReplyRule(
        api_key=api_key,
        action=action,
        error=code,
        delay_ms=_whole(fields, "delay_ms") or 0,
        topic=_text(fields, "topic"),
        partition=_whole(fields, "partition"),
        client_id=_text(fields, "client_id"),
        times=_whole(fields, "times"),
        after=bool(fields.get("after", False)),
    )


def rule_fields(rule: ReplyRule) -> dict[str, Any]:
    """Return the plain values of a rule that differ from their defaults, as `rule_from` reads them."""
    fields: dict[str, Any] = {"action": rule.action.value}
    if rule.api_key is not None:
        fields["api"] = api_name(rule.api_key)
    if rule.error is not ErrorCode.NONE:
        fields["error"] = rule.error.name
    for name in ("delay_ms", "topic", "partition", "client_id", "times", "after"):
        value = getattr(rule, name)
        if value or (name == "partition" and value is not None):
            fields[name] = value
    return fields


def _whole(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise BadRule(f"{name} is a whole number, not {value!r}")
    return value


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise BadRule(f"{name} is a text, not {value!r}")
    return value
