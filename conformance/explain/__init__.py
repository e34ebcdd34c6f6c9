"""Search for what explains a failure, whatever it is that is tried."""
