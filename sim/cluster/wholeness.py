"""Check the committed metadata of a cluster at rest: every partition has a leader, every replica is in sync."""

from __future__ import annotations

from kraft.image import MetadataImage


def partition_trouble(image: MetadataImage) -> str:
    """Describe the first partition that is not healthy; "" if there is none."""
    for topic in image.topics:
        for index, state in topic.partitions():
            if state.leader < 0:
                return f"{topic.name}-{index} has no leader (ISR {state.isr}, ELR {state.elr})"
            if set(state.isr) != set(state.replicas):
                return f"{topic.name}-{index} has ISR {state.isr} of {state.replicas}"
    return ""
