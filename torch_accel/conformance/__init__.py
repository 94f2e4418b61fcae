"""The conformance suite: every operator and module of torch's databases on accel, against the CPU."""
