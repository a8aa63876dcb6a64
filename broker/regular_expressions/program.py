"""Translate a syntax tree into a nondeterministic automaton: a list of instructions.

A repetition with numbers is written out, so the program may be much longer than the text; INSTRUCTIONS_MAX bounds it.
Source: Thompson.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kraft.broker.regular_expressions.characters import CharacterSet
from kraft.broker.regular_expressions.nodes import (
    Alternation,
    Assertion,
    AssertionKind,
    Characters,
    Concatenation,
    InvalidExpression,
    Repetition,
    SyntaxNode,
)

INSTRUCTIONS_MAX = 5_000


class Consume(NamedTuple):
    """Consume one character of the set and go to the instruction `then`."""

    characters: CharacterSet
    then: int


class CheckPlace(NamedTuple):
    """Go to `then` if the assertion holds here."""

    kind: AssertionKind
    then: int


@dataclass(slots=True)
class Branch:
    """Go to both instructions."""

    first: int
    second: int


class Accept(NamedTuple):
    """The text so far matches."""


Instruction = Consume | CheckPlace | Branch | Accept


class Program(NamedTuple):
    """The instructions; execution begins at `start`."""

    instructions: tuple[Instruction, ...]
    start: int


def translate(text: str, node: SyntaxNode) -> Program:
    """Return the program of the syntax tree of `text`. Raises InvalidExpression if it is too long."""
    writer = _Writer(text)
    accept = writer.write(Accept())
    start = writer.node(node, accept)
    return Program(tuple(writer.instructions), start)


class _Writer:
    """Writes the program from its end to its start: each part gets the instruction that follows it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.instructions: list[Instruction] = []

    def write(self, instruction: Instruction) -> int:
        if len(self.instructions) == INSTRUCTIONS_MAX:
            reason = f"too large: with its repetitions written out it needs more than {INSTRUCTIONS_MAX} instructions"
            raise InvalidExpression(self.text, 0, reason)
        self.instructions.append(instruction)
        return len(self.instructions) - 1

    def node(self, node: SyntaxNode, then: int) -> int:
        """Write a node that continues at `then`. Return its first instruction."""
        match node:
            case Characters(characters):
                return self.write(Consume(characters, then))
            case Assertion(kind):
                return self.write(CheckPlace(kind, then))
            case Concatenation(parts):
                for part in reversed(parts):
                    then = self.node(part, then)
                return then
            case Alternation(branches):
                start = self.node(branches[-1], then)
                for branch in reversed(branches[:-1]):
                    start = self.write(Branch(self.node(branch, then), start))
                return start
            case Repetition():
                return self._repetition(node, then)
            case _:
                return then

    def _repetition(self, repetition: Repetition, then: int) -> int:
        node, low, high = repetition
        start = then
        if high is None:
            loop = Branch(then, then)
            start = self.write(loop)
            loop.first = self.node(node, start)
        else:
            for _ in range(high - low):
                start = self.write(Branch(self.node(node, start), then))
        for _ in range(low):
            start = self.node(node, start)
        return start
