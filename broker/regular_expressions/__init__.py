"""Pure: regular expressions from clients over names of topics and transactional ids, in RE2's syntax as in Kafka.

May import nothing of kraft. `compile_expression(text)` returns an Expression, or raises InvalidExpression, whose text
says what is wrong and where. `Expression.matches(name)` returns whether the whole name matches, in time linear in the
name; a Match does the same in steps of limited length. Reading order: `nodes` (the syntax tree), `characters` (sets of
characters), `escapes`, `brackets` and `parser` (text to tree), `program` (tree to automaton), `expression` (the
automaton runs).
Source: KIP-848, KIP-1152, RE2.
"""

from kraft.broker.regular_expressions.expression import Expression, Match, compile_expression
from kraft.broker.regular_expressions.nodes import InvalidExpression

__all__ = ["Expression", "InvalidExpression", "Match", "compile_expression"]
