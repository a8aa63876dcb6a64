"""Who asks: one frozen value per connection (and client id), made at accept and handed to every handler.

Invariant: no handler learns about its peer in any other way, so authorisation and quotas see what the wire saw.
"""

from __future__ import annotations

from dataclasses import dataclass

ANONYMOUS = "User:ANONYMOUS"


@dataclass(frozen=True, slots=True)
class Session:
    """The peer of one connection. `principal` is Kafka's `Type:name`; `client_address` has no port."""

    listener: str
    security_protocol: str
    principal: str
    client_address: str
    client_id: str = ""
