"""Facts about a function of the tile IR that the passes use: order and uses, what may alias, affine forms of indices and addresses."""
