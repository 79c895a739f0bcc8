"""The version, in a module of its own so that builds can read it without importing anything."""

__version__ = "0.1.0"
