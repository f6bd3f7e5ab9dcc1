"""Which release this is; the package takes its version from here."""

__version__ = "0.1.0"
