"""Linearizability: is there one order of a history's calls in which a model gives every answer that was given, and in
which each takes effect at a moment between its call and its return?

A call that was never answered may take effect at any later time, or never: it need not have a place in the order. The
model says which states it may lead to, so the search goes on with sets of states.
Linearizability is local (Herlihy and Wing): judge the history of each key alone, which costs far less.
Source: Wing & Gong, Lowe (the cache of visited places).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

Key = TypeVar("Key", bound=Hashable)

STEPS_MAX = 100_000
"""Steps of the model before a search is given up."""
VALID, INVALID, UNKNOWN = "valid", "invalid", "unknown"


@dataclass(frozen=True, slots=True)
class Call:
    """What a client asked, and the answer. Times are in ns. `returned_ns` and `answer` None: nobody knows what came of
    it. A client with an open call goes on: for this judge a process is no more than a name."""

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
    """What is done to one key when nobody else is there. States are hashable values."""

    @property
    def initial(self) -> Hashable: ...

    def step(self, state: Any, asked: Any, answer: Any) -> Iterable[Hashable]:
        """The states that may come of this call; none if it cannot be answered so in `state`. Answer None: any."""
        ...


@dataclass(frozen=True, slots=True)
class Judgement:
    """`prefix` is the longest order that was found, and `states` are those that it may lead to; if the history is not
    linearizable, `stuck` is the first call to return that could not follow it."""

    verdict: str
    steps: int
    prefix: tuple[Call, ...]
    states: frozenset[Hashable]
    stuck: Call | None = None


def judge(history: Iterable[Call], model: Model, steps_max: int = STEPS_MAX) -> Judgement:
    """Whether the history of one key is linearizable: "valid", "invalid", or "unknown" if that takes more than
    `steps_max` steps of the model."""
    return _Search(tuple(history), model).run(steps_max)


def parted(calls: Iterable[tuple[Key, Call]]) -> Mapping[Key, tuple[Call, ...]]:
    """The history of each key, in the order of their first calls."""
    found: dict[Key, list[Call]] = {}
    for key, call in calls:
        found.setdefault(key, []).append(call)
    return {key: tuple(history) for key, history in found.items()}


class _Entries:
    """Calls and returns in order of time, as a doubly linked list in which 0 is the head: what was taken out last can
    be put back where it was. At one moment calls come before returns, so those that touch overlap."""

    def __init__(self, calls: Sequence[Call]) -> None:
        moments = [(call.called_ns, False, number) for number, call in enumerate(calls)]
        moments += [
            (call.returned_ns, True, number) for number, call in enumerate(calls) if call.returned_ns is not None
        ]
        moments.sort()
        count = len(moments)
        self.number = [-1, *(number for _, _, number in moments)]
        """Entry → which call it is of."""
        self.is_return = [False, *(is_return for _, is_return, _ in moments)]
        self.after = [*range(1, count + 1), 0]
        self._before = [count, *range(count)]
        returns = {number: entry for entry, (_, is_return, number) in enumerate(moments, start=1) if is_return}
        self._return_of = [returns.get(number, 0) for number in range(len(calls))]

    def take_out(self, entry: int) -> None:
        """A call, and its return if it has one."""
        self._unlink(entry)
        back = self._return_of[self.number[entry]]
        if back:
            self._unlink(back)

    def put_back(self, entry: int) -> None:
        """The reverse."""
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
    """Of each open call the one before it that is open and asked the same, as a bit; 0 for the first of its kind."""
    twins = [0] * len(calls)
    last: dict[Any, int] = {}
    for number in sorted(range(len(calls)), key=lambda number: calls[number].called_ns):
        if calls[number].is_open:
            twins[number] = last.get(calls[number].asked, 0)
            last[calls[number].asked] = 1 << number
    return twins


class _Search:
    """Depth first: the first call that can be next is taken, until a return is met of a call that was not. Of open
    calls that ask the same the earliest is taken first: it can stand in the place of a later one in any order."""

    def __init__(self, calls: tuple[Call, ...], model: Model) -> None:
        self._calls = calls
        self._twins = _earlier_twins(calls)
        self._model = model
        self._entries = _Entries(calls)
        self._taken: list[tuple[int, int, frozenset[Hashable]]] = []
        """Entries that were taken, and where the search was before: (which calls were taken, as bits; states)."""
        self._steps = 0
        self._prefix: tuple[Call, ...] = ()
        self._states = frozenset([model.initial])
        self._stuck: Call | None = None

    def run(self, steps_max: int) -> Judgement:
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
        """The longest order so far, or the whole one if nothing is stuck."""
        if stuck is None or self._stuck is None or len(self._taken) > len(self._prefix):
            self._prefix = tuple(self._calls[self._entries.number[entry]] for entry, _, _ in self._taken)
            self._states, self._stuck = states, stuck

    def _judgement(self, verdict: str) -> Judgement:
        return Judgement(verdict, self._steps, self._prefix, self._states, self._stuck)
