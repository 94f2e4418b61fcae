"""The tile IR: types, operations, the reader of Triton's IR, the verifier and the printer."""
