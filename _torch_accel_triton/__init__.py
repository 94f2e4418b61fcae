"""The entry point of group ``triton.backends``: what ``import triton`` finds of accel.

It lives outside of the package, because Triton imports it whatever the device, and importing any module of the package
registers accel. ``torch_accel.triton.backend`` has all that works.
"""
