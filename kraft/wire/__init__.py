"""Pure: conversion between bytes and values. Framing, the connection state machine, record batches, compression, the
internal RPC messages and the adapter to kio. May import nothing of kraft but kraft.wire and kraft.seam.
"""
