"""What must work right after `pip install`: run by the wheel's tests and by CI's wheel builds, with nothing but the wheel, torch and NumPy."""

import torch

assert torch.accel.is_available()
assert torch.accelerator.current_accelerator().type == "accel"

x = torch.randn(64, 64)
w = torch.randn(64, 64)
dx = x.to("accel")
dw = w.accel().requires_grad_()
y = (dx @ dw).relu().sum()
y.backward()

w.requires_grad_()
(x @ w).relu().sum().backward()
torch.testing.assert_close(dw.grad.cpu(), w.grad)

stream = torch.accel.Stream()
with torch.accel.stream(stream):
    z = dx + 1
stream.synchronize()
assert torch.equal(z.cpu(), x + 1)

print("torch_accel works")
