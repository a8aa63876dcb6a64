"""Metadata images for the tests of handlers, built by replay as in production."""

from __future__ import annotations

from uuid import UUID

from kraft.image import BrokerRegistration, Endpoint, Event, MetadataImage, events, replay
from kraft.image.image import EMPTY_IMAGE

ORDERS = UUID(int=0x0001_0000_0000_4000_8000_0000_0000_0001)
INTERNAL = UUID(int=0x0001_0000_0000_4000_8000_0000_0000_0002)
UNKNOWN = UUID(int=0x0001_0000_0000_4000_8000_0000_0000_0009)
DIRECTORY = UUID(int=0x0001_0000_0000_4000_8000_0000_0000_0077)
OTHER_DIRECTORY = UUID(int=0x0001_0000_0000_4000_8000_0000_0000_0078)


def broker_event(
    broker_id: int, *, fenced: bool = False, outside: bool = True, rack: str | None = None
) -> events.RegisterBroker:
    """Return the registration of broker N at broker-N:9092 and, if `outside` is true, also at example.org:19094."""
    endpoints = [Endpoint("PLAINTEXT", f"broker-{broker_id}", 9092)]
    if outside:
        endpoints.append(Endpoint("OUTSIDE", "example.org", 19090 + broker_id))
    return events.RegisterBroker(
        broker_id,
        UUID(int=broker_id),
        broker_epoch=10 + broker_id,
        endpoints=tuple(endpoints),
        rack=rack,
        fenced=fenced,
        log_dirs=(DIRECTORY,),
    )


def image_of(*changes: Event, offset: int = 100) -> MetadataImage:
    """Return the image after these events."""
    return replay(EMPTY_IMAGE, changes, offset, 1)


def three_brokers() -> tuple[Event, ...]:
    """Return events for three brokers: 1 and 2 are unfenced, and 3 is fenced; 2 has no OUTSIDE listener."""
    return (
        events.ClusterIdentity("Some-cluster-id-1234AB"),
        broker_event(1, rack="a"),
        broker_event(2, outside=False),
        broker_event(3, fenced=True),
    )


def orders() -> tuple[Event, ...]:
    """Return events for a topic of three partitions: led by broker 1, led by broker 2, without a leader."""
    directories = (DIRECTORY, DIRECTORY, DIRECTORY)
    return (
        events.Topic("orders", ORDERS),
        events.Partition(ORDERS, 0, (1, 2, 3), (1, 2), leader=1, leader_epoch=4, directories=directories),
        events.Partition(ORDERS, 1, (2, 3, 1), (2, 1), leader=2, leader_epoch=5, directories=directories),
        events.Partition(ORDERS, 2, (3, 1, 2), (3,), leader=-1, leader_epoch=6, directories=directories),
    )


def registration(image: MetadataImage, broker_id: int) -> BrokerRegistration:
    return image.brokers[broker_id]
