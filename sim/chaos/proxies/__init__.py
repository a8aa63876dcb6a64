"""Synchronous: a toxiproxy server, and one of its proxies for each directed link of a cluster.

`binary` builds the server once, and `server` runs it. `api` calls it through the toxiproxy-python package. `toxics`
defines values for the conditions of the bytes that flow in a direction, and `links` sets up proxies for them. May
import kraft.seam, kraft.sim.nemesis, kraft.sim.shapes and kraft.sim.chaos.clusters.held_ports. Needs the extra [chaos].
"""
