"""Regular expressions in subscriptions: find the topics that they match, and store them with the group.

An expression that a member names for the first time is resolved at once. All expressions of a group are resolved again
when topics have come or gone, at most every REFRESH_INTERVAL_MIN_MS, and otherwise every `regex_refresh_interval_ms`.
An expression matches only topics that the client may describe whose heartbeat begins the search, as in Kafka.
One step examines at most NAMES_PER_STEP topics, and fewer if the expression takes long; a longer search continues with
a timer.
Source: KIP-848, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from kraft.broker.consumer_group.memory import GroupMemory, RegexResolution, TopicSearch
from kraft.broker.consumer_group.records import RegexKey, RegexValue
from kraft.broker.consumer_group.state import Draft
from kraft.broker.consumer_group.subscriptions import is_regex_used
from kraft.broker.regular_expressions import InvalidExpression, compile_expression
from kraft.broker.shard.now import Now

NAMES_PER_STEP = 1_000
REFRESH_INTERVAL_MIN_MS = 10_000


def regex_problem(regex: str) -> str | None:
    """Return what is wrong with the expression; None if it is valid."""
    try:
        compile_expression(regex)
    except InvalidExpression as error:
        return str(error)
    return None


def begin_resolution(draft: Draft, search: TopicSearch, memory: GroupMemory, regex: str) -> None:
    """Begin to resolve an expression that is not resolved yet."""
    if regex not in draft.group.regexes and regex not in memory.resolutions:
        _begin(search, memory, regex)


def refresh(draft: Draft, search: TopicSearch, memory: GroupMemory, now: Now, interval_ms: int) -> None:
    """Begin to resolve all expressions of the group again, if it is time."""
    known = draft.group.regexes
    if not known or memory.resolutions:
        return
    elapsed_ms = None if memory.refreshed_ms is None else now.monotonic_ms - memory.refreshed_ms
    if elapsed_ms is not None and (
        elapsed_ms < REFRESH_INTERVAL_MIN_MS or (memory.refreshed is search.topics and elapsed_ms < interval_ms)
    ):
        return
    memory.refreshed_ms = now.monotonic_ms
    memory.refreshed = search.topics
    for regex in sorted(known):
        _begin(search, memory, regex)


def _begin(search: TopicSearch, memory: GroupMemory, regex: str) -> None:
    """Begin to resolve an expression, unless a broker with other rules has accepted it and it is not valid here."""
    try:
        expression = compile_expression(regex)
    except InvalidExpression:
        return
    memory.resolutions[regex] = RegexResolution(expression, search)


def continue_resolutions(draft: Draft, memory: GroupMemory, now: Now) -> bool:
    """Do one step of the unfinished resolutions, and write the topics of each that is finished. Return whether the
    topics of an expression have changed."""
    is_changed, left = False, NAMES_PER_STEP
    while memory.resolutions and left > 0:
        regex, resolution = next(iter(memory.resolutions.items()))
        left -= 1 + resolution.advance(left)
        if not resolution.is_over:
            break
        del memory.resolutions[regex]
        is_changed |= _finish(draft, regex, tuple(resolution.found), now)
    return is_changed


def _finish(draft: Draft, regex: str, topics: tuple[str, ...], now: Now) -> bool:
    """Write the topics of an expression that is still used. Return whether they have changed."""
    known = draft.group.regexes.get(regex)
    if not is_regex_used(draft.group, regex) or (known is not None and known.topics == topics):
        return False
    draft.write(RegexKey(draft.group_id, regex), RegexValue(topics, 0, now.wall_ms))
    return True


def forget_unused(draft: Draft, memory: GroupMemory, regex: str | None) -> None:
    """Remove the topics of an expression that no member uses any more."""
    if regex is None or is_regex_used(draft.group, regex):
        return
    memory.resolutions.pop(regex, None)
    if regex in draft.group.regexes:
        draft.write(RegexKey(draft.group_id, regex), None)
