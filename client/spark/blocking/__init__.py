"""Synchronous: a client of brokers over blocking sockets, for Spark's workers, which have a thread to wait in and need
no event loop. May import kraft.wire, kraft.client.core and kraft.runtime.tls."""
