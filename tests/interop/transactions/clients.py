"""Commands that start the transactional program of each foreign client. See the module `commands`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType

from tests.interop.programs import FRANZ_GO, HERE, JAVA, KAFKAJS

Command = tuple[str, ...]

CLIENTS: Mapping[str, Command] = MappingProxyType(
    {
        "confluent-kafka": (sys.executable, "-m", "tests.interop.transactions.confluent_client"),
        "aiokafka": (sys.executable, "-m", "tests.interop.transactions.aiokafka_client"),
        "kafka-python": (sys.executable, "-m", "tests.interop.transactions.kafka_python_client"),
        "java": (*JAVA.command[:-1], "kraft.interop.Transactions"),
        "franz-go": FRANZ_GO.command,
        "kafkajs": KAFKAJS.command,
        "sarama": (str(HERE / "sarama/target/sarama"),),
    }
)
