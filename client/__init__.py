"""Async: producer and consumer on trio, over the seam. core is pure. May import everything below kraft.client, never kraft.broker."""
