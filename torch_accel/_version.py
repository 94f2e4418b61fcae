"""The version: X.Y.z pairs with torch X.Y."""

__version__ = "2.13.0"
