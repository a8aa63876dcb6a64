"""A compiled regular expression: the program runs as a deterministic automaton, which is built while names are matched.

A state of the automaton is the set of instructions at which the program may be after the characters read so far. It
remembers its successors, so that a character usually costs one look-up. Matching never goes back, so its time is linear
in the name; the states are forgotten when there are too many.
Source: RE2.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache

from kraft.broker.regular_expressions.characters import WORD
from kraft.broker.regular_expressions.nodes import AssertionKind
from kraft.broker.regular_expressions.parser import parse
from kraft.broker.regular_expressions.program import Accept, Branch, CheckPlace, Consume, translate

STATES_SIZE_MAX = 100_000
"""Maximum size of all states together: the number of their instructions and successors."""


class _Neighbour(IntEnum):
    """What is next to a place between two characters: the edge of the text, or a character of this kind."""

    EDGE = 0
    NEWLINE = 1
    WORD = 2
    OTHER = 3


class _AutomatonState:
    """A state of the automaton. `previous` is the character before; `successors` is filled when they are needed."""

    __slots__ = ("accepts", "places", "previous", "successors")

    def __init__(self, places: frozenset[int], previous: _Neighbour) -> None:
        self.places = places
        self.previous = previous
        self.accepts: bool | None = None
        self.successors: dict[str, _AutomatonState] = {}


class Expression:
    """A compiled regular expression. `steps` is the number of instructions that its matches have executed; characters
    for which the successor was known cost none."""

    __slots__ = ("_instructions", "_sees_neighbours", "_size", "_start", "_states", "steps", "text")

    def __init__(self, text: str) -> None:
        """Compile `text`. Raises InvalidExpression."""
        self.text = text
        program = translate(text, parse(text))
        self._instructions = program.instructions
        self._sees_neighbours = any(isinstance(instruction, CheckPlace) for instruction in program.instructions)
        self._states: dict[tuple[frozenset[int], _Neighbour], _AutomatonState] = {}
        self._start = _AutomatonState(frozenset((program.start,)), _Neighbour.EDGE)
        self._size = 0
        self.steps = 0

    @property
    def size(self) -> int:
        """Size of all states together, at most about STATES_SIZE_MAX."""
        return self._size

    def matches(self, name: str) -> bool:
        """Return whether the whole name matches."""
        match = Match(self, name)
        while match.result is None:
            match.advance(STATES_SIZE_MAX)
        return match.result

    @property
    def start(self) -> _AutomatonState:
        """Return the state before the first character."""
        return self._start

    def accepts(self, state: _AutomatonState) -> bool:
        """Return whether the text matches if it ends in this state."""
        if state.accepts is None:
            places = self._reachable(state, _Neighbour.EDGE)
            state.accepts = any(isinstance(self._instructions[place], Accept) for place in places)
        return state.accepts

    def successor(self, state: _AutomatonState, character: str) -> _AutomatonState:
        """Return the state after one more character."""
        neighbour = _kind_of(character) if self._sees_neighbours else _Neighbour.EDGE
        code = ord(character)
        places = set()
        for place in self._reachable(state, neighbour):
            instruction = self._instructions[place]
            if isinstance(instruction, Consume) and instruction.characters.contains(code):
                places.add(instruction.then)
        key = (frozenset(places), neighbour)
        found = self._states.get(key)
        if self._size > STATES_SIZE_MAX:
            self._forget_states()
        if found is None:
            found = self._states[key] = _AutomatonState(*key)
            self._size += len(places)
        self._size += 1
        state.successors[character] = found
        return found

    def _forget_states(self) -> None:
        """Forget all states but the first. Without the successors, no state refers to another one."""
        for known in self._states.values():
            known.successors.clear()
        self._states.clear()
        self._size = 0
        self._start.successors.clear()

    def _reachable(self, state: _AutomatonState, following: _Neighbour) -> set[int]:
        """Return the instructions at which the program may be before the next character, without consuming any."""
        instructions = self._instructions
        reached: set[int] = set()
        waiting = list(state.places)
        while waiting:
            place = waiting.pop()
            if place in reached:
                continue
            reached.add(place)
            instruction = instructions[place]
            if isinstance(instruction, Branch):
                waiting += (instruction.first, instruction.second)
            elif isinstance(instruction, CheckPlace) and _holds(instruction.kind, state.previous, following):
                waiting.append(instruction.then)
        self.steps += len(reached)
        return reached


class Match:
    """The comparison of one name with an expression, which may take several steps. `result` is None until the end."""

    __slots__ = ("_expression", "_position", "_state", "name", "result")

    def __init__(self, expression: Expression, name: str) -> None:
        self._expression = expression
        self._state = expression.start
        self._position = 0
        self.name = name
        self.result: bool | None = None

    def advance(self, instructions_max: int) -> None:
        """Continue until the result is known or about this many instructions were executed."""
        expression, name, state = self._expression, self.name, self._state
        end = expression.steps + instructions_max
        for position in range(self._position, len(name)):
            if expression.steps >= end:
                self._state, self._position = state, position
                return
            character = name[position]
            state = state.successors.get(character) or expression.successor(state, character)
            if not state.places:
                self.result = False
                return
        self.result = expression.accepts(state)


def compile_expression(text: str) -> Expression:
    """Compile a regular expression. Raises InvalidExpression."""
    return Expression(text)


@lru_cache(maxsize=256)
def _kind_of(character: str) -> _Neighbour:
    if character == "\n":
        return _Neighbour.NEWLINE
    return _Neighbour.WORD if WORD.contains(ord(character)) else _Neighbour.OTHER


def _holds(kind: AssertionKind, previous: _Neighbour, following: _Neighbour) -> bool:
    match kind:
        case AssertionKind.TEXT_START:
            return previous is _Neighbour.EDGE
        case AssertionKind.TEXT_END:
            return following is _Neighbour.EDGE
        case AssertionKind.LINE_START:
            return previous in (_Neighbour.EDGE, _Neighbour.NEWLINE)
        case AssertionKind.LINE_END:
            return following in (_Neighbour.EDGE, _Neighbour.NEWLINE)
        case AssertionKind.WORD_BOUNDARY:
            return (previous is _Neighbour.WORD) != (following is _Neighbour.WORD)
        case AssertionKind.NO_WORD_BOUNDARY:
            return (previous is _Neighbour.WORD) == (following is _Neighbour.WORD)
