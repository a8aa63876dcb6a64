"""The log of a node: one line per event, with time, level, event and fields; JSON if requested.

The level of each logger is that of the logger with the same name in the standard library. So
`kraft.node.loggers.levels` can set it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TextIO
from uuid import UUID

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from kraft.deploy.launch.repeated_lines import RepeatedLines
from kraft.deploy.launch.streams import lossy
from kraft.seam.ids import encode_uuid

LEVELS = ("debug", "info", "warning", "error")
ANY_OTHER = "kraft"
"""Name of the loggers that are created without a name."""
FIRST_FIELDS = ("timestamp", "level", "event", "node")
NUMBERS = MappingProxyType({name.lower(): number for name, number in logging.getLevelNamesMapping().items()})

_WORDS = MappingProxyType({**NUMBERS, "trace": logging.DEBUG - 5, "off": logging.CRITICAL + 1})
"""Names of levels that are accepted: our names, and Kafka's."""


def parsed_logger_levels(pairs: Iterable[str]) -> dict[str, int]:
    """Parse texts NAME=LEVEL to levels by logger. Raise ValueError with the text that is wrong."""
    levels = {}
    for pair in pairs:
        name, _, word = map(str.strip, pair.partition("="))
        if not name or word.lower() not in _WORDS:
            raise ValueError(f"{pair!r}: expected NAME=LEVEL with a level of {', '.join(sorted(_WORDS))}")
        levels[name] = _WORDS[word.lower()]
    return levels


class NamedLogger(structlog.WriteLogger):
    """Writes the lines of one logger. `levels` decides which lines are written. Levels may change while the process
    runs."""

    def __init__(self, file: TextIO, name: str) -> None:
        super().__init__(file)
        self.levels = logging.getLogger(name)


def configure_logs(
    level: str, *, node_id: int, as_json: bool = False, loggers: Mapping[str, int] = MappingProxyType({})
) -> None:
    """Send this process's log to its standard error. A line that cannot be written is lost and has no other effect.
    `loggers` has the levels of single loggers, by name."""
    logging.root.setLevel(NUMBERS[level])
    for name, number in loggers.items():
        logging.getLogger(name).setLevel(number)
    file = lossy(sys.stderr)
    last: Processor = structlog.processors.JSONRenderer(default=_plain) if as_json else _render_line
    structlog.configure(
        processors=[
            _drop_below_level,
            RepeatedLines(),
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *([_fixed_fields_first] if as_json else []),
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=lambda name=ANY_OTHER: NamedLogger(file, name),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(node=node_id)


def _drop_below_level(logger: NamedLogger, method: str, event: EventDict) -> EventDict:
    if not logger.levels.isEnabledFor(NUMBERS[method]):
        raise structlog.DropEvent
    return event


def _fixed_fields_first(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Move the fields that every line has to the front of a JSON line."""
    return {key: event[key] for key in FIRST_FIELDS if key in event} | dict(event)


def _render_line(logger: WrappedLogger, method: str, event: EventDict) -> str:
    time, level = event.pop("timestamp", ""), event.pop("level", method)
    text = event.pop("event", "")
    exception = event.pop("exception", None)
    traceback = event.pop("traceback", None)
    fields = " ".join(f"{key}={_shown(value)}" for key, value in event.items())
    line = f"{time} {level.upper():7} {text}" + (f" {fields}" if fields else "")
    if traceback:
        line += "\n" + "".join(traceback).rstrip()
    return f"{line}\n{exception}" if exception else line


def _shown(value: object) -> str:
    text = _plain(value)
    return repr(text) if " " in text or not text else text


def _plain(value: object) -> str:
    return encode_uuid(value) if isinstance(value, UUID) else str(value)
