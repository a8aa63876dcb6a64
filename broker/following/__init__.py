"""Async: fetch from leaders: one fetcher per leader, and the partitions that this broker follows.

May import kraft.broker.logs and below.
"""
