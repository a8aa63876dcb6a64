"""Async: fetch Avro schemas from a schema registry, by id. A schema never changes, so it is cached; a failure is cached
for a limited time. Source: Confluent's schema registry API (`GET /schemas/ids/{id}`).
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Iterable
from functools import partial
from typing import Any

import trio

from kraft.deploy.console.messages.avro import BadAvro, parse_schema

SCHEMAS_MAX = 500
"""Maximum number of cached schemas; the least recently used one is evicted."""
SCHEMA_BYTES_MAX = 1_048_576
REGISTRY_TIMEOUT_S = 3.0
RETRY_S = 30.0
"""Seconds before a schema that could not be fetched is requested again."""
NEW_PER_PAGE_MAX = 20
"""Maximum number of unknown schema ids that are requested for one page. Bytes that are not Avro look like random schema
ids."""


class Registry:
    """Client of the schema registry at `url`. If `url` is None, there is no registry and no schema is found."""

    def __init__(self, url: str | None) -> None:
        self.url = None if url is None else url.rstrip("/")
        self._kept: OrderedDict[int, Any] = OrderedDict()
        self._failed: OrderedDict[int, tuple[float, str]] = OrderedDict()

    async def schemas(self, ids: Iterable[int]) -> dict[int, Any]:
        """Return the schemas with these ids. Schemas that could not be fetched are missing."""
        if self.url is None:
            return {}
        wanted = sorted(set(ids))
        now = trio.current_time()
        unknown = [one for one in wanted if one not in self._kept and not self._is_failed(one, now)]
        async with trio.open_nursery() as nursery:
            for schema_id in unknown[:NEW_PER_PAGE_MAX]:
                nursery.start_soon(self._fetch, schema_id)
        found = {one: self._kept[one] for one in wanted if one in self._kept}
        for schema_id in found:
            self._kept.move_to_end(schema_id)
        return found

    def problems(self, ids: Iterable[int]) -> dict[int, str]:
        """Return the error of each of these schemas that could not be fetched."""
        return {one: self._failed[one][1] for one in sorted(set(ids)) if one in self._failed}

    def _is_failed(self, schema_id: int, now: float) -> bool:
        return schema_id in self._failed and now - self._failed[schema_id][0] < RETRY_S

    async def _fetch(self, schema_id: int) -> None:
        ask = partial(fetch_schema, f"{self.url}/schemas/ids/{schema_id}")
        try:
            schema = await trio.to_thread.run_sync(ask, abandon_on_cancel=True)
        except BadAvro as problem:
            self._failed[schema_id] = (trio.current_time(), str(problem))
            _bound(self._failed)
            return
        self._failed.pop(schema_id, None)
        self._kept[schema_id] = schema
        _bound(self._kept)


def _bound(kept: OrderedDict[int, Any]) -> None:
    while len(kept) > SCHEMAS_MAX:
        kept.popitem(last=False)


def fetch_schema(address: str) -> Any:
    """Blocking: fetch the schema at an address of a registry. Raise BadAvro if the response is not a schema."""
    request = urllib.request.Request(address, headers={"Accept": "application/vnd.schemaregistry.v1+json"})
    try:
        with urllib.request.urlopen(request, timeout=REGISTRY_TIMEOUT_S) as answer:
            body = answer.read(SCHEMA_BYTES_MAX + 1)
    except urllib.error.HTTPError as refusal:
        refusal.close()
        raise BadAvro(f"{address}: {refusal}") from None
    except (OSError, ValueError) as problem:
        raise BadAvro(f"{address}: {problem}") from None
    if len(body) > SCHEMA_BYTES_MAX:
        raise BadAvro(f"{address}: a schema of more than {SCHEMA_BYTES_MAX} bytes")
    try:
        answered = json.loads(body)
        kind, text = answered.get("schemaType", "AVRO"), answered["schema"]
    except (ValueError, KeyError, AttributeError):
        raise BadAvro(f"{address}: the answer holds no schema") from None
    if kind != "AVRO":
        raise BadAvro(f"the schema is {kind}; only AVRO is decoded")
    return parse_schema(text)
