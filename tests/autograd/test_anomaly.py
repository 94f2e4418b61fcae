"""Anomaly mode names the line of the forward that a failing backward belongs to."""

import inspect
import warnings

import pytest
import torch
from torch import autograd


def root_of_zero(x):
    return x.sqrt() * 0  # this line is named


class Broken(autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad @ torch.ones(7, device=grad.device)


def broken(x):
    return Broken.apply(x)  # this line is named


CASES = {
    "nan": (root_of_zero, "Function 'SqrtBackward0' returned nan values in its 0th output.", "SqrtBackward0"),
    "error": (broken, "size mismatch", "BrokenBackward"),
}


def trace_of(function, message, device):
    """The warning that precedes the error of `function`'s backward."""
    x = torch.zeros(2, 2, device=device, requires_grad=True)
    with autograd.detect_anomaly(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        y = function(x).sum()
        with pytest.raises(RuntimeError, match=message):
            y.backward()
    (warning,) = [w for w in caught if "Error detected in" in str(w.message)]
    return str(warning.message)


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
@pytest.mark.parametrize("case", CASES)
def test_the_forwards_line_is_named(case):
    function, message, node = CASES[case]
    lines, first = inspect.getsourcelines(function)
    text, host = (trace_of(function, message, device) for device in ("accel", "cpu"))
    assert text.startswith(f"Error detected in {node}. Traceback of forward call that caused the error:\n")
    frame = f'  File "{__file__}", line {first + 1}, in {function.__name__}\n'
    assert frame + "    " + lines[1].strip().split("  #")[0] in text
    assert host == text


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_the_line_of_the_first_backward_is_named_too():
    # A node made by a backward knows the node that it was made for.
    x = torch.zeros(2, device="accel", requires_grad=True)
    with autograd.detect_anomaly(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        y = x.abs().pow(1.5).sum()  # its second derivative at 0 is infinite, times sign(0): nan
        (first,) = autograd.grad(y, x, create_graph=True)
        with pytest.raises(RuntimeError, match="returned nan values"):
            autograd.grad(first.sum(), x)
    texts = [str(w.message) for w in caught]
    assert any("Error detected in" in text for text in texts)
    assert any("Previous calculation was induced by" in text and f'File "{__file__}"' in text for text in texts)


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_without_the_check_a_nan_passes():
    x = torch.zeros(2, device="accel", requires_grad=True)
    with autograd.set_detect_anomaly(True, check_nan=False):
        assert torch.is_anomaly_enabled() and not torch.is_anomaly_check_nan_enabled()
        root_of_zero(x).sum().backward()
    assert x.grad.isnan().all()
    x.grad = None
    with autograd.set_detect_anomaly(False):
        root_of_zero(x).sum().backward()
    assert not torch.is_anomaly_enabled() and x.grad.isnan().all()


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_the_device_is_usable_afterwards():
    for function, message, _ in CASES.values():
        trace_of(function, message, "accel")
    x = torch.ones(2, device="accel", requires_grad=True)
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_an_error_in_a_backward_rises_without_anomaly_mode():
    x = torch.ones(2, 2, device="accel", requires_grad=True)
    with pytest.raises(RuntimeError, match="size mismatch"):
        broken(x).sum().backward()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [[2, 2], [2, 2]]
