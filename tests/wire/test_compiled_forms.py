"""Check that the compiled module has none of the code forms that mypyc is known to translate wrongly."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from hatch_build import SOURCE

ROOT = Path(__file__).resolve().parents[2]


def miscompiled_forms(source: str) -> Iterator[str]:
    """Return the miscompiled forms in this source.

    A call in a slice's bound is executed twice. A second handler with the same name raises TypeError. A star in a tuple
    after `in` crashes the compiler."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Slice):
            bounds = [bound for bound in (node.lower, node.upper, node.step) if bound is not None]
            if any(isinstance(part, ast.Call) for bound in bounds for part in ast.walk(bound)):
                yield f"line {node.lower.lineno if node.lower else 0}: a call in a slice's bound"
        elif isinstance(node, ast.Compare):
            for operator, right in zip(node.ops, node.comparators, strict=True):
                if isinstance(operator, ast.In | ast.NotIn) and any(
                    isinstance(p, ast.Starred) for p in ast.walk(right)
                ):
                    yield f"line {node.lineno}: a star inside `in (…)`"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [part.name for part in ast.walk(node) if isinstance(part, ast.ExceptHandler) and part.name]
            if len(names) != len(set(names)):
                yield f"line {node.lineno}: a name is used twice after `except … as`"
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    yield from (f"attribute {name} becomes a word of C" for name in sorted(attributes & {"_real", "_imag"}))


def _has_star(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Starred) for part in ast.walk(node))


def test_the_compiled_module_has_no_form_that_mypyc_miscompiles() -> None:
    assert list(miscompiled_forms((ROOT / SOURCE).read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "rest = rest[os.write(fd, rest):]",
        "rest = rest[: 1 + len(x)]",
        "y = x in (a, *b)",
        "y = x not in [*b]",
        "def f():\n try: g()\n except A as error: h(error)\n except B as error: i(error)",
        "self._real = 1",
    ],
)
def test_checks_catch_a_miscompiled_form(source: str) -> None:
    assert len(list(miscompiled_forms(source))) == 1


def test_checks_of_miscompiled_forms_accept_correctly_compiled_code() -> None:
    source = "end = f()\nx = y[1:end]\nz = x in (a, b)\n"
    source += "def f():\n try: g()\n except A as first: h(first)\n except B as second: h(second)"
    assert list(miscompiled_forms(source)) == []
