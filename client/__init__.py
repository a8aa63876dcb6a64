"""Async: producer and consumer on trio, over the seam; core is pure. May import everything below kraft.client, never
kraft.broker."""

from kraft.client.consumer import Consumer
from kraft.client.core.records import ConsumerRecord, DeliveryFailed, DeliveryReport, KafkaError
from kraft.client.producer import Producer

__all__ = ["Consumer", "ConsumerRecord", "DeliveryFailed", "DeliveryReport", "KafkaError", "Producer"]
