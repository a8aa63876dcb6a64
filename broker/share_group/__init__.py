"""Pure: the membership of share groups (KIP-932), in which several members may have one partition.

May import kraft.broker.shard, kraft.broker.consumer_group and kraft.wire; the group coordinator (kraft.broker.group)
builds on this folder. Reading order: `requests` (the interface), `records` (the records in the log), `state` (the state
computed from them), `assignor`, `initialization` (which share partitions may be assigned), `heartbeat` (decisions).
"""
