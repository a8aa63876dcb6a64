"""Async: the share consumer (KIP-932), which drives the pure state of `kraft.client.core.share`. May import everything
below kraft.client, never kraft.broker.
"""
