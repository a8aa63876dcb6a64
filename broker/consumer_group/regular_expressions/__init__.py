"""Pure: regular expressions over topic names, in the syntax that Kafka uses for subscriptions (RE2).

May import nothing of kraft. `compile_expression(text)` returns an Expression, or raises InvalidExpression, whose text
says what is wrong and where. `Expression.matches(name)` returns whether the whole name matches, in time linear in the
name. Reading order: `nodes` (the syntax tree), `characters` (sets of characters), `escapes`, `brackets` and `parser`
(text to tree), `program` (tree to automaton), `expression` (the automaton runs).
Source: KIP-848, RE2.
"""

from kraft.broker.consumer_group.regular_expressions.expression import Expression, compile_expression
from kraft.broker.consumer_group.regular_expressions.nodes import InvalidExpression

__all__ = ["Expression", "InvalidExpression", "compile_expression"]
