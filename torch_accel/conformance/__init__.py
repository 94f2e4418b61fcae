"""The conformance suite: every operator, module and optimizer of torch's databases on accel, against the CPU."""

#: variables that the suite needs: random numbers are compared with the CPU's, and a fallback is no difference
ENVIRONMENT = {"ACCEL_RNG": "cpu", "ACCEL_FALLBACK": "allow"}
