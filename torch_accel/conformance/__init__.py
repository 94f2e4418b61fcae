"""The conformance suite: every operator, module and optimizer of torch's databases on accel, against the CPU."""
