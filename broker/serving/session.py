"""Session: the peer of a connection, as one frozen value per connection (and client id). It is created when the
connection is accepted, and passed to every handler.

Invariant: handlers learn about their peer in no other way, so authorization and quotas see the peer of the actual
connection.
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
