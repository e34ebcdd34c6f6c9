"""The work of the pytest plugin in a session of the suite; pytest itself loads ``conformance.plugin``."""
