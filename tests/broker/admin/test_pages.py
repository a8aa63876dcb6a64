"""Pages of the admin listener without a node: the tests replace the node's state by plain functions."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.broker.admin.endpoints import Pages
from kraft.broker.admin.node_view import BrokerView, NodeView
from kraft.broker.serving.metrics.metric_registry import Metrics
from kraft.config import NodeConfig
from kraft.seam import ListenerStats
from kraft.wire.http import HttpAnswer, HttpRequest
from tests.stages.broker_harness import CLUSTER_ID, PROPERTIES

NO_QUORUM: Any = None


def pages(*, not_ready: str | None = None, broker: BrokerView | None = None, token: str = "") -> Pages:
    config = NodeConfig.parse({**PROPERTIES, **({"kraft.admin.token": token} if token else {})})
    view = NodeView(config, CLUSTER_ID, Metrics(), NO_QUORUM, NO_QUORUM, lambda: False, lambda: "1.2.3", broker)
    return Pages(view, lambda: not_ready, ListenerStats())


def ask(made: Pages, path: str) -> tuple[int, bytes]:
    answer: HttpAnswer = made.answer(HttpRequest(path, {}))
    return answer.status, b"".join(answer.pieces)


@pytest.mark.parametrize(("reason", "status"), [(None, 200), ("the broker is fenced", 503)])
def test_the_ready_page_returns_the_reason_why_a_node_is_not_ready(reason: str | None, status: int) -> None:
    found, text = ask(pages(not_ready=reason), "/ready")
    assert found == status
    assert (reason or "true").encode() in text


def test_the_state_page_returns_the_broker_state_and_404_on_a_controller_only_node() -> None:
    assert ask(pages(broker=BrokerView(lambda: 3, lambda: None)), "/v1/broker-state") == (200, b'{"brokerState": 3}\n')
    assert ask(pages(), "/v1/broker-state")[0] == 404


def test_the_info_page_names_node_cluster_version_and_roles() -> None:
    _, text = ask(pages(), "/info")
    assert text == b'{"node": 1, "cluster": "%s", "version": "1.2.3", "roles": ["broker"]}\n' % CLUSTER_ID.encode()


def test_an_admin_request_without_the_token_is_rejected_and_counted() -> None:
    made = pages(token="0123456789abcdef")
    assert ask(made, "/info")[0] == 401
    assert made.stats.authentications_failed == 1
