"""A program that converts a dashboard (its argument) to Grafana's models and back. It prints the parts that were lost,
and values that the models do not have. The models are grafana_foundation_sdk, on PYTHONPATH.
"""

from __future__ import annotations

import enum
import json
import sys
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any


def lost(before: Any, after: Any, where: str) -> Iterator[str]:
    """Return the paths whose values in `before` are missing or different in `after`."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in before.items():
            if name in after:
                yield from lost(value, after[name], f"{where}.{name}")
            else:
                yield f"{where}.{name}: not known"
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from lost(one, other, f"{where}[{place}]")
    elif before != after:
        yield f"{where}: {before!r} became {after!r}"


def wrong_words(model: Any, where: str) -> Iterator[str]:
    """Return the attributes of the model, and of nested models, with a value outside their enumeration."""
    if isinstance(model, list):
        for place, one in enumerate(model):
            yield from wrong_words(one, f"{where}[{place}]")
    if not type(model).__module__.startswith("grafana_foundation_sdk") or isinstance(model, enum.Enum):
        return
    hints = typing.get_type_hints(type(model))
    for name, value in vars(model).items():
        for kind in (hints.get(name), *typing.get_args(hints.get(name))):
            if not isinstance(kind, type) or not issubclass(kind, enum.Enum) or value is None:
                continue
            words = [one.value for one in kind]
            if value not in words and not isinstance(value, kind):
                yield f"{where}.{name}: {value!r} is not one of {words}"
        yield from wrong_words(value, f"{where}.{name}")


def main(path: str) -> None:
    import_module("grafana_foundation_sdk.cog.plugins").register_default_plugins()
    models = import_module("grafana_foundation_sdk.models.dashboard")
    encoder = import_module("grafana_foundation_sdk.cog.encoder")
    before = json.loads(Path(path).read_text())
    board = models.Dashboard.from_json(before)
    after = json.loads(encoder.JSONEncoder().encode(board))
    for line in (*lost(before, after, ""), *wrong_words(board, "")):
        print(line)


if __name__ == "__main__":
    main(sys.argv[1])
