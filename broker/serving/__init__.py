"""Async: services that every request needs besides its handler: sessions, gates, throttling, purgatory, limits,
metrics.

May import everything below kraft.broker, and its pure folders; other folders only for type annotations.
"""
