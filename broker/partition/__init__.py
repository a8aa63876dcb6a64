"""Synchronous: one hosted replica: its log, its role, the requests that wait for it, and its log directory.

May import kraft.broker.serving and kraft.broker.replica, and everything below kraft.broker.
"""
