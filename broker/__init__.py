"""Async: the broker, one folder per part; each part is async, synchronous or pure.

From the bottom: shard and regular_expressions, consumer_group and share_partition, share_group, then replica, group,
txn and share_coordinator (all pure); serving, partition, logs, following with api.fetch and api.produce, roles,
coordinator, api, admin, node. These folders may import everything below kraft.broker, never kraft.client.
"""
