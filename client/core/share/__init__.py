"""Pure: what the share consumer (KIP-932) keeps and decides: sessions, held records, acknowledgements and requests. May
import kraft.client.core and kraft.wire.
"""
