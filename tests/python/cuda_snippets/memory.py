"""Memory: statistics, limits, snapshots, checkpoints."""

import io

import torch
from torch import nn


def report():
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    x = torch.ones(1024, 1024, device="cuda")
    held = torch.cuda.memory_allocated() - before
    total = (x * 2).sum()
    peak = torch.cuda.max_memory_allocated() - before
    text = f"allocated {torch.cuda.memory_allocated() / 2**20:.1f} MB, reserved {torch.cuda.memory_reserved() / 2**20:.1f} MB"
    assert "MB" in text and "cuda" not in torch.cuda.memory_summary(abbreviated=True).lower().split("|")[0]
    free, whole = torch.cuda.mem_get_info()
    assert 0 < free < whole == torch.cuda.get_device_properties(0).total_memory
    assert torch.cuda.memory_stats()["allocated_bytes.all.current"] == torch.cuda.memory_allocated(0)
    return [total, held, peak >= 2 * held]


def report_on_cpu():
    return [torch.tensor(2.0 * 1024 * 1024), 4 * 1024 * 1024, True]


def out_of_memory():
    """A loader that halves its batch until it fits in the share of the memory that it may have."""
    torch.cuda.set_per_process_memory_fraction(0.01)
    batch = torch.cuda.get_device_properties("cuda").total_memory // 64
    tries = 0
    try:
        while True:
            try:
                x = torch.ones(batch, dtype=torch.uint8, device="cuda")
                return [tries, x[:3]]
            except torch.cuda.OutOfMemoryError:
                torch.cuda.empty_cache()
                batch //= 4096
                tries += 1
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def out_of_memory_on_cpu():
    return [1, torch.ones(3, dtype=torch.uint8)]


def history():
    torch.cuda.memory._record_memory_history(max_entries=100)
    x = torch.zeros(300_000, device="cuda")
    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    sizes = [event["size"] for event in snapshot["device_traces"][0] if event["action"] == "alloc"]
    return [x.sum(), any(size >= 1_200_000 for size in sizes)]


def history_on_cpu():
    return [torch.tensor(0.0), True]


def checkpoints():
    """Saved from CUDA, loaded to where the program asks."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2).cuda()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "step": 7, "device": torch.device("cuda:0")}, file)
    loaded = []
    for place in ("cuda", "cuda:0", torch.device("cuda"), {"cuda:0": "cuda:0"}, None, "cpu", lambda s, _: s.cuda(0)):
        file.seek(0)
        state = torch.load(file, map_location=place, weights_only=not callable(place))
        assert state["step"] == 7 and state["device"] == torch.device("cuda", 0)
        assert state["model"]["weight"].is_cuda == (place != "cpu")
        loaded.append(state["model"]["weight"])
    other = nn.Linear(3, 2).cuda()
    other.load_state_dict(state["model"])
    return [*loaded, other(torch.ones(1, 3).cuda())]


def checkpoints_on_cpu():
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    return [model.weight] * 7 + [model(torch.ones(1, 3))]


def storages():
    x = torch.arange(6.0).cuda()
    storage = x.untyped_storage()
    assert storage.is_cuda and storage.device.type == "cuda" and not storage.cpu().is_cuda
    moved = storage.cpu().cuda()
    assert moved.is_cuda and moved.device == storage.device
    return torch.tensor([], device="cuda").set_(moved, 0, (2, 3), (3, 1))


def storages_on_cpu():
    return torch.arange(6.0).view(2, 3)
