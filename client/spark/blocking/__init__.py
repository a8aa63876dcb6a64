"""Synchronous: a client of brokers over blocking sockets, for Spark's workers. Their thread may block, so the client
needs no event loop.

May import kraft.wire, kraft.client.core and kraft.runtime.tls.
"""
