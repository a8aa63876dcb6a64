"""Async: fetching from leaders: one fetcher per leader, and each partition that it follows. May import
kraft.broker.logs and below."""
