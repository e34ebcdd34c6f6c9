"""Makes ``pytest conformance`` work in a checkout, installed or not."""

pytest_plugins = ["conformance.plugin"]
