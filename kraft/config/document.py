"""Generator of docs/configuration.md: one chapter per module of `kraft.config.tables`."""

from __future__ import annotations

from collections.abc import Callable

from kraft.config.key import ConfigKey, Effect, UpdateMode
from kraft.config.table import CHAPTERS, TOPIC_SYNONYMS
from kraft.config.tables import group, topic

_HEAD = """# Configuration

Every key that Kafka 4 defines is known. *Effective* keys do what Kafka's documentation says. A key with *no effect* is
accepted, so that an existing `server.properties` works, and is listed once in the node's log. A *refused* key stops the
node, because starting without its effect could be harmful. A key that is not on this page is an error that names the
nearest one (`kraft node --ignore-unknown` turns it into a warning).

To change a key, edit the file and restart the node. Where the column *changes* permits it, `kraft configs alter`
changes a key while nodes run, for one broker or for the whole cluster. `listener.name.<listener>.<key>` is a security
key of one listener.

This page is generated: `make docs`.
"""


def render_table() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD]
    for chapter in CHAPTERS:
        parts.append(_chapter(_title(chapter.__doc__), chapter.KEYS, "changes", _changes))
    parts.append(_chapter("Topic settings", topic.KEYS, "default from", _default_from))
    parts.append(_chapter(_title(group.__doc__), group.KEYS, "default from", lambda key: _code(key.broker_key)))
    return "\n".join(parts)


def _title(docstring: str | None) -> str:
    return (docstring or "").splitlines()[0].rstrip(".")


def _chapter(title: str, keys: tuple[ConfigKey, ...], column: str, cell: Callable[[ConfigKey], str]) -> str:
    lines = [
        f"## {title}",
        "",
        f"| key | type | default | {column} | effect | meaning |",
        "|---|---|---|---|---|---|",
    ]
    lines += [_row(key, cell(key)) for key in keys if not key.is_internal]
    return "\n".join(lines) + "\n"


def _row(key: ConfigKey, cell: str) -> str:
    default = "" if key.default is None else f"`{key.default}`" if key.default else "(empty)"
    doc = key.doc
    if key.validator is not None and key.validator.__doc__:
        doc += f" Valid: {key.validator.__doc__}."
    effect = key.effect.value.removeprefix("accepted, ")
    if key.effect is not Effect.EFFECTIVE:
        effect += f": {key.reason}"
    cells = (f"`{key.name}`", key.type.name.lower(), default, cell, effect, doc)
    return "| " + " | ".join(text.replace("|", "\\|") for text in cells) + " |"


def _changes(key: ConfigKey) -> str:
    return "" if key.update_mode is UpdateMode.READ_ONLY else key.update_mode.value


def _default_from(key: ConfigKey) -> str:
    return ", ".join(f"`{name}`" for name, _ in TOPIC_SYNONYMS.get(key.name, ()))


def _code(name: str | None) -> str:
    return "" if name is None else f"`{name}`"
