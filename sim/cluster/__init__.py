"""Async: a whole cluster in one world, with production nodes, clients, crashes, and observers that feed the checks. May
import everything but kraft.deploy.
"""
