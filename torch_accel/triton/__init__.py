"""Triton on accel: the tile IR of our own, its reader from Triton's IR, and an interpreter that defines it.

Importing this package does not import Triton; ``frontend`` does, at its first call. It comes with the extra ``[compile]``.
"""
