"""What the command ``accel-triton`` is made of."""
