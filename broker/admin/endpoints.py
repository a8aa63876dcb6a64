"""The pages of the admin listener: a table from each path to the function that returns its page.

The liveness probe never depends on other nodes; otherwise one lost controller would restart a whole cluster. No page
changes anything or shows a secret. Probes need no token, because a supervisor that restarts nodes knows no secrets.
Paths under /v1 are those of Strimzi's agent.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from hmac import compare_digest
from http import HTTPStatus
from typing import TYPE_CHECKING

from kraft.broker.serving.metrics.naming import NAMES
from kraft.broker.serving.metrics.text import text_in_steps
from kraft.wire.http import HttpAnswer, HttpRequest, text_answer

if TYPE_CHECKING:
    from kraft.broker.admin.node_view import NodeView
    from kraft.seam import ListenerStats

JSON = "application/json"
PROBES = frozenset({"/live", "/ready", "/v1/ready"})
"""Paths of the liveness and readiness probes. They need no token. They are answered even if the node has more admin
connections than its maximum, because many open connections must not get a node restarted."""
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of one node. `not_ready()` returns why clients should not use the node yet, or None if it is ready.
    `stats` counts the requests that lack the token."""

    node: NodeView
    not_ready: Callable[[], str | None]
    stats: ListenerStats

    def answer(self, request: HttpRequest) -> HttpAnswer:
        """Return the page at the request's path. Return 404 if there is no page at this path, and 401 if the page needs
        a token that the request lacks."""
        if not self._may(request):
            self.stats.authentications_failed += 1
            return text_answer(HTTPStatus.UNAUTHORIZED, "send the header Authorization: Bearer, with kraft.admin.token")
        page = {
            "/live": self._live,
            "/ready": self._ready,
            "/metrics": self._metrics,
            "/info": self._info,
            "/v1/ready": self._agent_ready,
            "/v1/broker-state": self._broker_state,
        }.get(request.path)
        if page is None:
            return text_answer(HTTPStatus.NOT_FOUND, f"{request.path} is not served; {_PATHS} are")
        return page(request)

    def _may(self, request: HttpRequest) -> bool:
        token = self.node.config.string("kraft.admin.token")
        if not token or request.path in PROBES:
            return True
        scheme, _, given = request.authorization.partition(" ")
        return scheme.lower() == "bearer" and compare_digest(given.strip().encode(), token.encode())

    def _live(self, request: HttpRequest) -> HttpAnswer:
        """Answer the liveness probe. Any answer proves that the node lives: a blocked event loop would not send one."""
        return _json(HTTPStatus.OK, {"live": True})

    def _ready(self, request: HttpRequest) -> HttpAnswer:
        reason = self.not_ready()
        if reason is None:
            return _json(HTTPStatus.OK, {"ready": True})
        return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"ready": False, "reason": reason})

    def _agent_ready(self, request: HttpRequest) -> HttpAnswer:
        is_ready = self.not_ready() is None
        return HttpAnswer(HTTPStatus.NO_CONTENT) if is_ready else self._ready(request)

    def _broker_state(self, request: HttpRequest) -> HttpAnswer:
        broker = self.node.broker
        if broker is None:
            return text_answer(HTTPStatus.NOT_FOUND, "this node is no broker")
        return _json(HTTPStatus.OK, {"brokerState": broker.state()})

    def _info(self, request: HttpRequest) -> HttpAnswer:
        config = self.node.config
        row = {
            "node": config.node_id,
            "cluster": self.node.cluster_id,
            "version": self.node.version(),
            "roles": sorted(config.roles),
        }
        return _json(HTTPStatus.OK, row)

    def _metrics(self, request: HttpRequest) -> HttpAnswer:
        family = request.query.get("names", self.node.config.string("kraft.metrics.names"))
        if family not in NAMES:
            return text_answer(HTTPStatus.BAD_REQUEST, f"names={family}: expected one of {', '.join(NAMES)}")
        partitions = request.query.get("partitions", "0") == "1"
        steps = text_in_steps(self.node.metrics, partitions=partitions, names=NAMES[family])
        return HttpAnswer(HTTPStatus.OK, EXPOSITION, (piece.encode() for piece in steps))


def answer_above_maximum(pages: Pages, connections_max: int) -> Callable[[HttpRequest], HttpAnswer]:
    """Answer a request on a connection beyond the maximum: probes as usual, every other request with 503."""
    text = f"kraft.admin.connections.max={connections_max} connections are open; close some or raise it"

    def answer(request: HttpRequest) -> HttpAnswer:
        is_probe = request.path in PROBES
        return pages.answer(request) if is_probe else text_answer(HTTPStatus.SERVICE_UNAVAILABLE, text)

    return answer


_PATHS = "/live, /ready, /metrics, /info, /v1/ready and /v1/broker-state"


def _json(status: int, row: dict[str, object]) -> HttpAnswer:
    return HttpAnswer(status, JSON, (json.dumps(row).encode() + b"\n",))
