"""Pure: decisions about configurations of topics and brokers."""
