"""Linearizability: whether one order of a history's calls explains every answer.

In such an order each call takes effect at one moment between its call and its return, and the model gives the answers
of the history.

A call that was never answered may take effect at any later time, or never: it need not have a place in the order. The
model returns all states that such a call may lead to, so the search works with sets of states. Linearizability is local
(Herlihy and Wing): the history of each key is checked alone, which costs far less.
Source: Wing & Gong, Lowe (the cache of visited places).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

Key = TypeVar("Key", bound=Hashable)

STEPS_MAX = 100_000
"""Maximum number of model steps before a search is abandoned."""
VALID, INVALID, UNKNOWN = "valid", "invalid", "unknown"


@dataclass(frozen=True, slots=True)
class Call:
    """A client's request and its answer. Times are in ns. If `returned_ns` and `answer` are None, the outcome is
    unknown. A process may have several calls open at the same time; its name is not used by the search."""

    process: str
    called_ns: int
    returned_ns: int | None
    asked: Any
    answer: Any = None

    @property
    def is_open(self) -> bool:
        return self.returned_ns is None

    def __str__(self) -> str:
        end = "" if self.returned_ns is None else f"{self.returned_ns / 1e6:.3f}"
        return f"{self.called_ns / 1e6:.3f} to {end or '?'} ms {self.process}: {self.asked} -> {self.answer}"


class Model(Protocol):
    """Sequential behaviour of one key, on which calls act one after the other. States are hashable values."""

    @property
    def initial(self) -> Hashable: ...

    def step(self, state: Any, asked: Any, answer: Any) -> Iterable[Hashable]:
        """Return the states that this call may lead to; empty if `answer` is impossible in `state`. Answer None allows
        any answer."""
        ...


@dataclass(frozen=True, slots=True)
class LinearizabilityJudgement:
    """Result for one key. `prefix` is the longest valid order of calls that was found, and `states` are the states that
    it may lead to. If the history is not linearizable, `stuck` is the call that could not be added to the prefix; among
    several it is the one that returned first."""

    verdict: str
    steps: int
    prefix: tuple[Call, ...]
    states: frozenset[Hashable]
    stuck: Call | None = None


def judge(history: Iterable[Call], model: Model, steps_max: int = STEPS_MAX) -> LinearizabilityJudgement:
    """Check the history of one key: "valid" (linearizable), "invalid", or "unknown" if that takes more than `steps_max`
    steps of the model."""
    return _Search(tuple(history), model).run(steps_max)


def parted(calls: Iterable[tuple[Key, Call]]) -> Mapping[Key, tuple[Call, ...]]:
    """Return the history of each key; keys are in the order of their first calls."""
    found: dict[Key, list[Call]] = {}
    for key, call in calls:
        found.setdefault(key, []).append(call)
    return {key: tuple(history) for key, history in found.items()}


class _Entries:
    """Calls and returns in order of time, as a doubly linked list whose head is entry 0. The list allows the entry that
    was removed last to be put back in its place. At equal times calls come before returns, so two calls overlap if one
    begins when the other returns."""

    def __init__(self, calls: Sequence[Call]) -> None:
        moments = [(call.called_ns, False, number) for number, call in enumerate(calls)]
        moments += [
            (call.returned_ns, True, number) for number, call in enumerate(calls) if call.returned_ns is not None
        ]
        moments.sort()
        count = len(moments)
        self.number = [-1, *(number for _, _, number in moments)]
        """Entry → the number of the call that it belongs to."""
        self.is_return = [False, *(is_return for _, is_return, _ in moments)]
        self.after = [*range(1, count + 1), 0]
        self._before = [count, *range(count)]
        returns = {number: entry for entry, (_, is_return, number) in enumerate(moments, start=1) if is_return}
        self._return_of = [returns.get(number, 0) for number in range(len(calls))]

    def take_out(self, entry: int) -> None:
        """Remove the entry of a call from the list, and the entry of its return if there is one."""
        self._unlink(entry)
        back = self._return_of[self.number[entry]]
        if back:
            self._unlink(back)

    def put_back(self, entry: int) -> None:
        """Put back the call that `take_out` removed last."""
        back = self._return_of[self.number[entry]]
        if back:
            self._link(back)
        self._link(entry)

    def _unlink(self, entry: int) -> None:
        before, after = self._before[entry], self.after[entry]
        self.after[before], self._before[after] = after, before

    def _link(self, entry: int) -> None:
        self.after[self._before[entry]] = self._before[self.after[entry]] = entry


def _earlier_twins(calls: Sequence[Call]) -> list[int]:
    """Return for each open call the previous open call with the same request, as a bit; 0 if there is none."""
    twins = [0] * len(calls)
    last: dict[Any, int] = {}
    for number in sorted(range(len(calls)), key=lambda number: calls[number].called_ns):
        if calls[number].is_open:
            twins[number] = last.get(calls[number].asked, 0)
            last[calls[number].asked] = 1 << number
    return twins


class _Search:
    """Depth-first search for a valid order. It places the first call that can be next, and goes back when it meets the
    return of a call that has not been placed. Of several open calls with the same request it places the earliest first,
    because that one can replace a later one in any order."""

    def __init__(self, calls: tuple[Call, ...], model: Model) -> None:
        self._calls = calls
        self._twins = _earlier_twins(calls)
        self._model = model
        self._entries = _Entries(calls)
        self._taken: list[tuple[int, int, frozenset[Hashable]]] = []
        """Placed entries, each with the state of the search before it: (placed calls as bits, states)."""
        self._steps = 0
        self._prefix: tuple[Call, ...] = ()
        self._states = frozenset([model.initial])
        self._stuck: Call | None = None

    def run(self, steps_max: int) -> LinearizabilityJudgement:
        entries, calls, taken = self._entries, self._calls, self._taken
        done, states = 0, self._states
        visited: set[tuple[int, frozenset[Hashable]]] = set()
        missing = sum(not call.is_open for call in calls)
        at = entries.after[0]
        while missing:
            call = calls[entries.number[at]]
            if entries.is_return[at]:
                self._remember(call, states)
                if not taken:
                    return self._judgement(INVALID)
                at, done, states = taken.pop()
                entries.put_back(at)
                missing += not calls[entries.number[at]].is_open
                at = entries.after[at]
                continue
            if self._twins[entries.number[at]] & ~done:
                at = entries.after[at]
                continue
            if self._steps == steps_max:
                return self._judgement(UNKNOWN)
            following = self._step(states, call)
            place = (done | 1 << entries.number[at], following)
            is_idle = call.is_open and following <= states
            if following and not is_idle and place not in visited:
                visited.add(place)
                taken.append((at, done, states))
                entries.take_out(at)
                missing -= not call.is_open
                done, states = place
                at = entries.after[0]
            else:
                at = entries.after[at]
        self._remember(None, states)
        return self._judgement(VALID)

    def _step(self, states: frozenset[Hashable], call: Call) -> frozenset[Hashable]:
        self._steps += 1
        step = self._model.step
        return frozenset(new for state in states for new in step(state, call.asked, call.answer))

    def _remember(self, stuck: Call | None, states: frozenset[Hashable]) -> None:
        """Remember the current order if it is the longest so far; if no call is stuck, it is the whole order."""
        if stuck is None or self._stuck is None or len(self._taken) > len(self._prefix):
            self._prefix = tuple(self._calls[self._entries.number[entry]] for entry, _, _ in self._taken)
            self._states, self._stuck = states, stuck

    def _judgement(self, verdict: str) -> LinearizabilityJudgement:
        return LinearizabilityJudgement(verdict, self._steps, self._prefix, self._states, self._stuck)
