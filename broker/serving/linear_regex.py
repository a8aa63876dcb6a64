"""LinearRegex: regular expressions from clients, matched in time that is linear in the length of the text.

A client's pattern must not block the event loop, as it could with a backtracking engine. So a pattern becomes a
nondeterministic automaton (Thompson's construction), and a match follows all its current states at once. Supported:
literals, `.`, classes, groups, `|`, `*`, `+`, `?`, `{m,n}`, lazy forms of these, `^`, `$`, and the escapes d, D, s, S,
w, W and those of punctuation. Patterns that need backtracking are rejected, as in RE2: backreferences and look-around.
Source: KIP-1152, Kafka's TransactionStateManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

PATTERN_CHARS_MAX = 1_000
STATES_MAX = 2_000
REPEATS_MAX = 1_000
CACHED_STEPS_MAX = 10_000
"""Maximum number of cached transitions. At the limit the cache is emptied, so that its memory is bounded."""

Accepts = Callable[[str], bool]


class InvalidPattern(Exception):
    """Raised for a pattern that is malformed, too large, or not supported; the message says which."""


@dataclass(slots=True, eq=False)
class State:
    """One state of the automaton. `accepts` is None in a state that consumes no character; `following` are its
    successors."""

    accepts: Accepts | None = None
    following: list[State] = field(default_factory=list)
    at_start: bool = False
    """Whether the state can be passed only before the first character."""
    at_end: bool = False
    """Whether the state can be passed only after the last character."""


@dataclass(slots=True)
class Piece:
    """A part of the automaton, which is entered at `first` and left from `last`."""

    first: State
    last: State


class LinearRegex:
    """A compiled pattern. The constructor raises InvalidPattern."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_CHARS_MAX:
            raise InvalidPattern(f"a pattern has at most {PATTERN_CHARS_MAX} characters")
        parser = PatternParser(pattern)
        piece = parser.parse()
        self._last = piece.last
        self._first = piece.first
        self._steps: dict[tuple[frozenset[State], str], frozenset[State]] = {}

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches the whole text."""
        states = _closure({self._first}, is_start=True, is_end=not text)
        for number, char in enumerate(text, 1):
            is_end = number == len(text)
            states = self._step(states, char) if not is_end else _next(states, char, is_end=True)
            if not states:
                return False
        return self._last in states

    def _step(self, states: frozenset[State], char: str) -> frozenset[State]:
        found = self._steps.get((states, char))
        if found is None:
            if len(self._steps) >= CACHED_STEPS_MAX:
                self._steps.clear()
            found = self._steps[states, char] = _next(states, char, is_end=False)
        return found


def _next(states: frozenset[State], char: str, *, is_end: bool) -> frozenset[State]:
    reached = {one for state in states if state.accepts is not None and state.accepts(char) for one in state.following}
    return _closure(reached, is_start=False, is_end=is_end)


def _closure(states: set[State], *, is_start: bool, is_end: bool) -> frozenset[State]:
    """Return these states and all states that are reached from them without consuming a character."""
    found: set[State] = set()
    open_states = list(states)
    while open_states:
        state = open_states.pop()
        if state in found or (state.at_start and not is_start) or (state.at_end and not is_end):
            continue
        found.add(state)
        if state.accepts is None:
            open_states += state.following
    return frozenset(found)


CLASSES: Mapping[str, Accepts] = MappingProxyType(
    {
        "d": lambda char: "0" <= char <= "9",
        "s": lambda char: char in " \t\n\r\f\v",
        "w": lambda char: char == "_" or (char.isascii() and char.isalnum()),
    }
)
CONTROLS: Mapping[str, str] = MappingProxyType({"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"})


def _negated(accepts: Accepts) -> Accepts:
    return lambda char: not accepts(char)


def _any_of(parts: list[Accepts]) -> Accepts:
    return lambda char: any(accepts(char) for accepts in parts)


def _between(low: str, high: str) -> Accepts:
    return lambda char: low <= char <= high


class PatternParser:
    """Builds the automaton of one pattern, by recursive descent."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._position = 0
        self._count = 0

    def parse(self) -> Piece:
        piece = self._alternatives()
        if self._peek():
            raise InvalidPattern(f"unexpected {self._peek()!r} at {self._position}")
        return piece

    def _peek(self) -> str:
        return self._pattern[self._position : self._position + 1]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise InvalidPattern("the pattern ends too early")
        self._position += 1
        return char

    def _skip(self, text: str) -> bool:
        if self._pattern.startswith(text, self._position):
            self._position += len(text)
            return True
        return False

    def _state(self, accepts: Accepts | None = None) -> State:
        self._count += 1
        if self._count > STATES_MAX:
            raise InvalidPattern("the pattern is too large")
        return State(accepts)

    # structure

    def _alternatives(self) -> Piece:
        pieces = [self._sequence()]
        while self._skip("|"):
            pieces.append(self._sequence())
        if len(pieces) == 1:
            return pieces[0]
        first, last = self._state(), self._state()
        for piece in pieces:
            first.following.append(piece.first)
            piece.last.following.append(last)
        return Piece(first, last)

    def _sequence(self) -> Piece:
        first = last = self._state()
        while self._peek() not in ("", "|", ")"):
            piece = self._repeated()
            last.following.append(piece.first)
            last = piece.last
        return Piece(first, last)

    def _repeated(self) -> Piece:
        begin = self._position
        piece = self._atom()
        end = self._position
        bounds = self._bounds()
        if bounds is None:
            return piece
        self._skip("?")  # the lazy form of a repetition matches the same texts
        if self._bounds() is not None:
            raise InvalidPattern(f"two repetitions at {self._position}")
        after = self._position
        low, high = bounds
        pieces = [piece]
        wanted = max(low, 1) if high is None else max(high, 1)
        while len(pieces) < wanted:  # each copy needs separate states, so the atom is parsed again
            self._position = begin
            pieces.append(self._atom())
            if self._position != end:
                raise InvalidPattern("a repetition does not parse")
        self._position = after
        return self._joined(pieces, low, high)

    def _joined(self, pieces: list[Piece], low: int, high: int | None) -> Piece:
        """Return a piece that passes `low` to `high` of these copies in turn. If `high` is None, the last copy may
        repeat."""
        first, last = self._state(), self._state()
        if high == 0:
            first.following.append(last)
            return Piece(first, last)
        at = first
        for number, piece in enumerate(pieces):
            if number >= low:
                at.following.append(last)
            at.following.append(piece.first)
            at = piece.last
        if high is None:
            at.following.append(pieces[-1].first)
        at.following.append(last)
        return Piece(first, last)

    def _bounds(self) -> tuple[int, int | None] | None:
        """Read the bounds of a repetition; return None if there is no repetition at this position."""
        if self._skip("*"):
            return 0, None
        if self._skip("+"):
            return 1, None
        if self._skip("?"):
            return 0, 1
        if not self._skip("{"):
            return None
        text = ""
        while not self._skip("}"):
            text += self._take()
        low, comma, high = text.partition(",")
        if not low.isdecimal() or (high and not high.isdecimal()):
            raise InvalidPattern(f"{{{text}}} is no repetition")
        bounds = int(low), (int(high) if high else None) if comma else int(low)
        if max(bounds[0], bounds[1] or 0) > REPEATS_MAX or (bounds[1] is not None and bounds[1] < bounds[0]):
            raise InvalidPattern(f"{{{text}}} is no repetition of at most {REPEATS_MAX}")
        return bounds

    # atoms

    def _atom(self) -> Piece:
        char = self._take()
        if char == "(":
            return self._group()
        state = self._state()
        if char == "^":
            state.at_start = True
        elif char == "$":
            state.at_end = True
        elif char in "*+?{":
            raise InvalidPattern(f"nothing to repeat at {self._position - 1}")
        else:
            state.accepts = self._accepts(char)
        last = self._state()
        state.following.append(last)
        return Piece(state, last)

    def _group(self) -> Piece:
        if self._skip("?") and not self._skip(":"):
            raise InvalidPattern("only (?:…) of the special groups is supported")
        piece = self._alternatives()
        if not self._skip(")"):
            raise InvalidPattern("a group is not closed")
        return piece

    def _accepts(self, char: str) -> Accepts:
        if char == ".":
            return lambda one: one != "\n"
        if char == "[":
            return self._class()
        if char == "\\":
            return self._escape()
        return char.__eq__

    def _escape(self) -> Accepts:
        char = self._take()
        if char.lower() in CLASSES:
            accepts = CLASSES[char.lower()]
            return accepts if char.islower() else _negated(accepts)
        return self._escaped(char).__eq__

    def _escaped(self, char: str) -> str:
        if char in CONTROLS:
            return CONTROLS[char]
        if char.isascii() and char.isalnum():
            raise InvalidPattern(f"\\{char} is not supported")
        return char

    def _class(self) -> Accepts:
        is_negated = self._skip("^")
        parts: list[Accepts] = []
        while not parts or self._peek() != "]":
            char = self._take()
            if char == "\\" and self._peek().lower() in CLASSES:
                parts.append(self._escape())
                continue
            low = self._escaped(self._take()) if char == "\\" else char
            if self._peek() == "-" and self._pattern[self._position + 1 : self._position + 2] not in ("", "]"):
                self._take()
                high = self._take()
                high = self._escaped(self._take()) if high == "\\" else high
                if high < low:
                    raise InvalidPattern(f"the range {low}-{high} is empty")
                parts.append(_between(low, high))
            else:
                parts.append(low.__eq__)
        self._take()
        accepts = _any_of(parts)
        return _negated(accepts) if is_negated else accepts
