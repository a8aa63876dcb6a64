"""Send orders, write an invoice for each, and finally check that every order has an invoice.

    kraft run -- python app.py [ORDERS [PER_SECOND]]

Exit code 0: every order has an invoice. 1: some orders have none.
"""

import os
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
SECONDS_MAX = 120


def create_topics() -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    topics = [NewTopic("orders", num_partitions=3), NewTopic("invoices", num_partitions=1)]
    for name, created in admin.create_topics(topics).items():
        try:
            created.result()
        except KafkaException as problem:
            print(f"topic {name}: {problem}")  # the topic may exist already


def take_orders(count: int, per_second: float) -> None:
    """Send the orders. The client retries sends that a leader change interrupted."""
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
    for number in range(count):
        producer.produce("orders", key=f"{number}", value=f"order {number}")
        producer.poll(0)
        time.sleep(1 / per_second)
    producer.flush(SECONDS_MAX)


def consumer(group: str, topic: str) -> Consumer:
    reader = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    reader.subscribe([topic])
    return reader


def write_invoices(count: int, deadline: float) -> None:
    """Write an invoice for each order, at least once. An order counts as done when its invoice is acknowledged."""
    orders = consumer("billing", "orders")
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
    done = set()
    while len(done) < count and time.monotonic() < deadline:
        batch = [order for order in orders.consume(100, timeout=0.5) if not order.error()]
        for order in batch:
            producer.produce("invoices", key=order.key(), value=b"invoice for " + order.value())
        if batch and producer.flush(SECONDS_MAX) == 0:
            done.update(order.key() for order in batch)
            try:
                orders.commit(asynchronous=False)
            except KafkaException as problem:
                print(f"not committed: {problem}")  # orders without an acknowledged invoice may be delivered again
    orders.close()


def count_invoices(count: int, deadline: float) -> int:
    """Return how many of the orders have an invoice."""
    invoices = consumer(f"audit-{os.getpid()}", "invoices")
    found = set()
    while len(found) < count and time.monotonic() < deadline:
        found.update(invoice.key() for invoice in invoices.consume(100, timeout=0.5) if not invoice.error())
    invoices.close()
    return len(found)


def main(count: int = 200, per_second: float = 100.0) -> int:
    deadline = time.monotonic() + SECONDS_MAX
    create_topics()
    taking = threading.Thread(target=take_orders, args=(count, per_second))
    taking.start()
    write_invoices(count, deadline)
    taking.join()
    found = count_invoices(count, deadline)
    print(f"{count} orders, {found} with an invoice")
    return 0 if found == count else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
