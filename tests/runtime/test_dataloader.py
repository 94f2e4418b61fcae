"""DataLoader with pinned memory, and the pinned memory itself."""

import collections
import threading

import pytest
import torch
from expecttest import assert_expected_inline
from torch.utils.data import DataLoader, TensorDataset

from torch_accel.testing import hold_stream

Batch = collections.namedtuple("Batch", ["x", "y"])


def collate(items):
    return Batch(torch.stack([x for x, _ in items]), torch.tensor([int(y) for _, y in items]))


# A forked worker may not touch the device, and need not: the parent pins.
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_pinned_and_right(workers, recwarn):
    x, y = torch.arange(40.0).reshape(20, 2), torch.arange(20)
    options = {"multiprocessing_context": "fork"} if workers else {}
    loader = DataLoader(TensorDataset(x, y), batch_size=8, num_workers=workers, pin_memory=True, **options)
    torch.ones(1, device="accel")
    for _ in range(2):
        count = 0
        for bx, by in loader:
            assert bx.is_pinned() and by.is_pinned()
            moved = bx.to("accel", non_blocking=True)
            assert torch.equal(moved.cpu(), x[count : count + len(by)])
            assert torch.equal(by.to("accel", non_blocking=True).cpu(), y[count : count + len(by)])
            count += len(by)
        assert count == 20
    assert not [w for w in recwarn if "pin_memory" in str(w.message)]


def onto_the_device(items):
    """Runs in a spawned worker, which may use the device."""
    return torch.stack([x for (x,) in items]).to("accel") * 2


def test_spawned_workers_make_batches_on_the_device():
    """Their batches arrive over torch.multiprocessing: the memory is the worker's."""
    x = torch.arange(24.0).reshape(12, 2)
    loader = DataLoader(TensorDataset(x), 4, num_workers=1, multiprocessing_context="spawn", collate_fn=onto_the_device)
    batches = list(loader)
    assert all(batch.is_accel for batch in batches)
    assert torch.equal(torch.cat([batch.cpu() for batch in batches]), x * 2)


def test_structures_are_kept():
    loader = DataLoader(TensorDataset(torch.ones(4, 2), torch.arange(4)), 2, pin_memory=True, collate_fn=collate)
    for batch in loader:
        assert isinstance(batch, Batch) and batch.x.is_pinned() and batch.y.is_pinned()


def test_prefetching_overwrites_nothing():
    # Batches are freed while their copies are queued: the host allocator keeps each block until its copy has read it.
    loader = DataLoader(
        TensorDataset(torch.arange(64.0).reshape(64, 1).expand(64, 1000).contiguous()), 4, pin_memory=True
    )
    torch.accel.synchronize()
    with hold_stream():
        moved = [x.to("accel", non_blocking=True) for (x,) in loader]
    assert torch.equal(torch.cat(moved)[:, 0].cpu(), torch.arange(64.0))
    assert torch.equal(torch.cat(moved)[:, 999].cpu(), torch.arange(64.0))


def test_training_on_batches():
    torch.manual_seed(0)
    x = torch.randn(64, 3)
    y = x @ torch.tensor([1.0, -2.0, 0.5])
    losses = []
    for device in ("cpu", "accel"):
        torch.manual_seed(1)
        model = torch.nn.Linear(3, 1).to(device)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        losses.append([])
        for _ in range(3):
            for bx, by in DataLoader(TensorDataset(x, y), 16, pin_memory=device == "accel"):
                loss = (
                    (model(bx.to(device, non_blocking=True))[:, 0] - by.to(device, non_blocking=True)).square().mean()
                )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses[-1].append(loss.item())
    assert losses[0] == losses[1] and losses[1][-1] < losses[1][0] / 4


def test_pin_memory():
    x = torch.arange(12.0).reshape(3, 4).t()
    pinned = x.pin_memory()
    assert pinned.is_pinned() and not x.is_pinned() and torch.equal(pinned, x) and pinned.device.type == "cpu"
    assert pinned.pin_memory() is pinned
    assert pinned[1:].is_pinned() and pinned.untyped_storage().is_pinned()
    assert not pinned.clone().is_pinned()
    assert torch.empty(3, pin_memory=True).is_pinned() and torch.zeros(3, pin_memory=True).sum() == 0
    assert torch.empty(0, pin_memory=True).numel() == 0
    assert torch.ones(3).untyped_storage().pin_memory().is_pinned()


class Noted:
    """A batch that notes where it is pinned: its thread, and that thread's device."""

    def __init__(self, items):
        self.x = torch.tensor(items)

    def pin_memory(self):
        self.x = self.x.pin_memory()
        self.device, self.thread = torch.accel.current_device(), threading.current_thread()
        return self


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_pinned_with_the_callers_device(two_devices, workers):
    """torch pins in a thread if there are workers: with the device that is current where the loader is iterated."""
    two_devices(f"""
        import threading, torch
        from torch.utils.data import DataLoader
        from tests.runtime.test_dataloader import Noted
        context = "fork" if {workers} else None
        loader = DataLoader(range(6), 2, num_workers={workers}, multiprocessing_context=context, pin_memory=True, collate_fn=Noted)
        for device in (1, 0):
            torch.accel.set_device(device)
            batches = list(loader)
            assert [batch.device for batch in batches] == [device] * 3
            assert all((b.thread is threading.main_thread()) == ({workers} == 0) for b in batches)
            assert all(batch.x.is_pinned() for batch in batches)
            assert torch.cat([batch.x.to("accel", non_blocking=True) for batch in batches]).tolist() == list(range(6))
    """)


def test_without_a_device(script):
    """Pinned memory is refused where no device could read it; a loader that asks for it goes without, as torch has it."""
    done = script(
        """
        import warnings, torch
        from torch.utils.data import DataLoader
        for pin in (
            lambda: torch.empty(3, pin_memory=True),
            lambda: torch.zeros(3, pin_memory=True),
            lambda: torch.ones(3).pin_memory(),
        ):
            try:
                pin()
            except RuntimeError as error:
                print(error)
        assert not torch.ones(3).is_pinned()
        torch.accel.empty_host_cache()
        torch.accelerator.empty_host_cache()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            batches = list(DataLoader(torch.arange(4), 2, pin_memory=True))
        print(*(warning.message for warning in caught))
        assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3]]
        """,
        ACCEL_DEVICES=0,
    )
    assert_expected_inline(
        done.stdout,
        """\
accel: host memory is pinned for a device, and there is no accel device; ACCEL_DEVICES=0 hides the accel devices, unset it or leave pin_memory out
accel: host memory is pinned for a device, and there is no accel device; ACCEL_DEVICES=0 hides the accel devices, unset it or leave pin_memory out
accel: host memory is pinned for a device, and there is no accel device; ACCEL_DEVICES=0 hides the accel devices, unset it or leave pin_memory out
'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.
""",
    )
