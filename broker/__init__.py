"""Async and pure folders of a broker: replica, group and txn are pure, api holds handlers, node runs them. May import
everything below kraft.broker, never kraft.client."""
