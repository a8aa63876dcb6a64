"""Async: drives the group coordinators of the offsets partitions that this broker leads, and hands out producer ids.
May import kraft.broker.roles and below, and kraft.broker.group.
"""
