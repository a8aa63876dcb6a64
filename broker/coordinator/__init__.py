"""Async: run the coordinators of groups and transactions for the internal-topic partitions that this broker leads, have
transaction markers written, and hand out producer ids.

May import kraft.broker.roles and below, kraft.broker.group and kraft.broker.txn.
"""
