"""SyncBatchNorm's operators: two shards of a batch give what batch norm gives on the whole batch."""

import pytest
import torch

from torch_accel.testing import hold_stream

F = torch.nn.functional
LAYOUTS = {
    "2d": ((6, 3), torch.contiguous_format),
    "images": ((6, 3, 4, 5), torch.contiguous_format),
    "channels_last": ((6, 3, 4, 5), torch.channels_last),
}


def shards(x):
    return x[:2], x[2:]  # uneven on purpose


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.float64, 1e-12), (torch.bfloat16, 0.05)])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_shards_equal_the_batch(layout, affine, dtype, tolerance):
    torch.manual_seed(0)
    shape, memory_format = LAYOUTS[layout]
    x = torch.randn(shape).to(dtype).to(memory_format=memory_format)
    grad = torch.randn(shape).to(dtype)
    wide = torch.float32 if dtype == torch.bfloat16 else dtype
    weight, bias = (torch.rand(3, dtype=wide) + 0.5, torch.randn(3, dtype=wide)) if affine else (None, None)
    mean, var = torch.randn(3, dtype=wide), torch.rand(3, dtype=wide) + 0.5

    # The oracle: batch norm of the whole batch in float64, and its gradients.
    leaves = [t.double().requires_grad_() for t in (x, weight, bias) if t is not None]
    running = [mean.double().clone(), var.double().clone()]
    expected = F.batch_norm(leaves[0], *running, *(leaves[1:] or (None, None)), training=True, momentum=0.3, eps=1e-3)
    expected.backward(grad.double())

    d_weight, d_bias = (None if t is None else t.to("accel") for t in (weight, bias))
    d_running = [mean.to("accel"), var.to("accel")]
    parts = [(a.to("accel"), g.to("accel")) for a, g in zip(shards(x), shards(grad))]
    counts = torch.tensor([a.numel() / 3 for a, _ in parts], dtype=wide).to("accel")
    with hold_stream():
        local = [torch.batch_norm_stats(a, 1e-3) for a, _ in parts]
        means, invstds = (torch.stack(s) for s in zip(*local))
        m, invstd = torch.batch_norm_gather_stats_with_counts(
            parts[0][0], means, invstds, *d_running, 0.3, 1e-3, counts
        )
        outs = [torch.batch_norm_elemt(a, d_weight, d_bias, m, invstd, 1e-3) for a, _ in parts]
        sums = [torch.batch_norm_backward_reduce(g, a, m, invstd, d_weight, True, affine, affine) for a, g in parts]
        dy, dy_xmu = (torch.stack(s).sum(0) for s in list(zip(*sums))[:2])
        grads = [
            torch.batch_norm_backward_elemt(g, a, m, invstd, d_weight, dy, dy_xmu, counts.to(torch.int32))
            for a, g in parts
        ]

    def close(actual, oracle):
        torch.testing.assert_close(actual.cpu().double(), oracle, rtol=tolerance, atol=tolerance)

    close(torch.cat(outs), expected.detach())
    close(torch.cat(grads), leaves[0].grad)
    for mine, theirs in zip(d_running, running):
        close(mine, theirs)
    if affine:
        close(sum(s[2] for s in sums), leaves[1].grad)
        close(sum(s[3] for s in sums), leaves[2].grad)
    for out, (a, _) in zip(outs, parts):
        assert out.dtype == dtype and out.stride() == a.stride()


def test_equal_counts():
    x = torch.randn(4, 3).to("accel")
    stats = [torch.batch_norm_stats(part, 1e-5) for part in (x[:2], x[2:])]
    means, invstds = (torch.stack(s) for s in zip(*stats))
    mean, invstd = torch.batch_norm_gather_stats(x, means, invstds, None, None, 0.1, 1e-5, 2)
    torch.testing.assert_close(mean.cpu(), x.cpu().mean(0))
    torch.testing.assert_close(invstd.cpu(), (x.cpu().var(0, correction=0) + 1e-5).rsqrt())


def test_wrong_operands_name_accel():
    x = torch.randn(4, 3).to("accel")
    with pytest.raises(RuntimeError, match="accel: batch_norm_stats expects a floating input"):
        torch.batch_norm_stats(x.long(), 1e-5)
    with pytest.raises(RuntimeError, match=r"accel: batch_norm_elemt expects .* 3 channels, but got \[2\]"):
        torch.batch_norm_elemt(x, None, None, x[0, :2], x[0, :2], 1e-5)
    with pytest.raises(RuntimeError, match="expects all tensors to be on accel:0, but got one on cpu"):
        torch.batch_norm_elemt(x, None, None, x[0].cpu(), x[0], 1e-5)
    with pytest.raises(RuntimeError, match=r"statistics of \[processes, 3\]"):
        torch.batch_norm_gather_stats(x, x[0], x[0], None, None, 0.1, 1e-5, 2)
