"""Pure: records as rows of a page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kraft.client.core.records import ConsumerRecord
from kraft.deploy.console.messages.decoding import SHOWN_BYTES_MAX, Form, Schemas, Shown, show
from kraft.deploy.console.messages.query import format_time

HEADERS_SHOWN_MAX = 20
KEY_SHOWN_BYTES = 512


@dataclass(frozen=True, slots=True)
class RecordRow:
    """A record as the page shows it. `more_headers` is the number of headers left out."""

    partition: int
    offset: int
    time: str
    key: Shown
    value: Shown
    headers: tuple[tuple[str, Shown], ...]
    more_headers: int

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON for the script of a live page."""
        return {
            "partition": self.partition,
            "offset": self.offset,
            "time": self.time,
            "key": _plain(self.key),
            "value": _plain(self.value),
            "headers": [{"name": name, **_plain(value)} for name, value in self.headers],
        }


def row_of(record: ConsumerRecord, form: Form, schemas: Schemas, bytes_max: int = SHOWN_BYTES_MAX) -> RecordRow:
    """Return the row of a record. `form` applies to the value. The key is shown in the same form if it fits, else in
    the form that suits it best."""
    key = show(
        record.key, form, schemas, min(bytes_max, KEY_SHOWN_BYTES) if bytes_max == SHOWN_BYTES_MAX else bytes_max
    )
    if key.problem:
        key = show(record.key, Form.AUTO, schemas, KEY_SHOWN_BYTES)
    shown = record.headers if bytes_max > SHOWN_BYTES_MAX else record.headers[:HEADERS_SHOWN_MAX]
    headers = tuple((name, show(value, Form.AUTO, schemas, KEY_SHOWN_BYTES)) for name, value in shown)
    return RecordRow(
        record.partition,
        record.offset,
        format_time(record.timestamp_ms),
        key,
        show(record.value, form, schemas, bytes_max),
        headers,
        len(record.headers) - len(shown),
    )


def _plain(shown: Shown) -> dict[str, Any]:
    return {"form": shown.form, "text": shown.text, "cut": shown.cut_bytes, "problem": shown.problem}
