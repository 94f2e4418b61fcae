"""What Triton's runtime asks of a backend: compiler stages, loading, launches. ``_torch_accel_triton`` hands it to Triton."""
