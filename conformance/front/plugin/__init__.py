"""What the plugin does in a session of the suite; pytest itself loads ``conformance.plugin``."""
