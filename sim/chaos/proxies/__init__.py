"""Synchronous: a toxiproxy server of our own, and one proxy of it for each directed link of a cluster.

`binary` builds the server once, `server` runs it, `api` talks to it through the toxiproxy-python package, `toxics` has
the values that say how the bytes of a way fare, and `links` makes a set of proxies as those say. May import kraft.seam,
kraft.sim.nemesis, kraft.sim.shapes and kraft.sim.chaos.clusters.held_ports. Needs the extra [chaos].
"""
