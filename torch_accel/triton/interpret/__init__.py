"""One interpreter in NumPy, which defines what kernels compute: ``raw.run`` of Triton's IR, ``tile.run`` of the tile IR."""
