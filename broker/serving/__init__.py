"""Async: services that every request needs besides its handler: sessions, gates, throttling, purgatory, limits,
metrics. May import everything below kraft.broker, and its pure rooms; other rooms only for type annotations.
"""
