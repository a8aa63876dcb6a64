"""Async and pure rooms of a broker. From the bottom: replica and group (pure), serving, partition, logs, following with
api.fetch and api.produce, roles, coordinator, api, admin, node. These rooms may import everything below kraft.broker,
never kraft.client.
"""
