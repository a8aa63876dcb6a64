"""Async: fetch from leaders: one fetcher per leader, and the partitions that it follows. May import kraft.broker.logs
and below.
"""
