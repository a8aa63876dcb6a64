"""Async: the broker, one folder per part; each part is async, synchronous or pure.

From the bottom: shard, replica, group and txn (pure), serving, partition, logs, following with api.fetch and
api.produce, roles, coordinator, api, admin, node. These folders may import everything below kraft.broker, never
kraft.client.
"""
