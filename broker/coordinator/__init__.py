"""Async: drives the coordinators of groups and of transactions whose partitions this broker leads, has markers written,
and hands out producer ids. May import kraft.broker.roles and below, kraft.broker.group and kraft.broker.txn.
"""
