"""`docs/protocol.md`: each API of Kafka 4.x, whether it is served here, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator

from kraft.controller.request_handlers import REQUESTS
from kraft.wire.api_keys import BROKER_APIS, ApiKey
from kraft.wire.reply_policy import api_name
from tests.docs.kafka_apis import KAFKA_APIS, KafkaApi

_WITHOUT_METRICS_CONFIGS = "configs of client metrics (KIP-714): refused with INVALID_REQUEST"
_WITHOUT_SASL = "SASL, listeners are PLAINTEXT or SSL: refused with ILLEGAL_SASL_STATE"
_WITHOUT_ACLS = "authorisation, every request is allowed: refused with SECURITY_DISABLED"
_PARTS_MISSING = {
    ApiKey.SASL_HANDSHAKE: _WITHOUT_SASL,
    ApiKey.SASL_AUTHENTICATE: _WITHOUT_SASL,
    ApiKey.DESCRIBE_ACLS: _WITHOUT_ACLS,
    ApiKey.CREATE_ACLS: _WITHOUT_ACLS,
    ApiKey.DELETE_ACLS: _WITHOUT_ACLS,
    ApiKey.DESCRIBE_CONFIGS: "configs of client metrics (KIP-714): there are none",
    ApiKey.ALTER_CONFIGS: _WITHOUT_METRICS_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _WITHOUT_METRICS_CONFIGS,
}
"""Parts that are missing in the API versions that are served."""

_HEAD = """# The protocol

What a client may ask of a broker, API by API, measured by Apache Kafka 4.1, and by later 4.x releases where they add
something. What is served is served whole, but for what the last column names. What is not served is not advertised,
and a request for it ends its connection, as in Kafka.

The controller listener answers {controllers}.

This page is generated: `make docs`.
"""

_REASONS = {
    "SASL: listeners are PLAINTEXT or SSL": (50, 51),
    "delegation tokens": (38, 39, 40, 41),
    "client quotas": (48, 49),
    "client telemetry": (71, 72),
    "streams groups (new in 4.2)": (88, 89),
}


def render_protocol() -> str:
    """Render the page."""
    controllers = ", ".join(api_name(key) for key in sorted(REQUESTS) if key in KAFKA_APIS)
    served = [key for key in KAFKA_APIS if key in BROKER_APIS]
    missing = [key for key in KAFKA_APIS if key not in BROKER_APIS]
    lines = [
        _HEAD.format(controllers=controllers),
        f"## Served ({len(served)})\n",
        "| key | API | versions | Kafka 4.1 | missing for 4.x parity |",
        "|---|---|---|---|---|",
        *(_served(key, KAFKA_APIS[key]) for key in sorted(served)),
        f"\n## Not served ({len(missing)})\n",
        "| key | API | Kafka 4.1 | belongs to |",
        "|---|---|---|---|",
        *(
            f"| {int(key)} | {api_name(key)} | {_range(*KAFKA_APIS[key][:2])} | {_reason(key)} |"
            for key in sorted(missing)
        ),
    ]
    return "\n".join(lines) + "\n"


def _served(key: ApiKey, kafka: KafkaApi) -> str:
    ours = BROKER_APIS[key]
    shown = _range(ours.min, ours.max)
    if ours.advertised_min != ours.min:
        shown += f" (shown from {ours.advertised_min})"
    gaps = "; ".join(_gaps(key, kafka)) or "–"
    return f"| {int(key)} | {api_name(key)} | {shown} | {_range(kafka.min, kafka.max)} | {gaps} |"


def _gaps(key: ApiKey, kafka: KafkaApi) -> Iterator[str]:
    ours = BROKER_APIS[key]
    if ours.min > kafka.min or ours.max < kafka.max:
        yield f"versions {_range(kafka.min, kafka.max)} of 4.1"
    if ours.max < kafka.newest:
        yield f"v{kafka.newest} ({kafka.added})"
    if key in _PARTS_MISSING:
        yield _PARTS_MISSING[key]


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}–{high}"


def _reason(key: ApiKey) -> str:
    return next((reason for reason, keys in _REASONS.items() if key in keys), "")
