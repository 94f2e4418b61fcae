"""The pytest plugin: options, the ``device`` fixture, marks, and what is told at the end. See docs/testing_your_library.md.

A package beside torch_accel, not in it: pytest loads it in every run of every project, and importing anything of
torch_accel imports torch. Nothing here imports torch before a run has asked for accel.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import pytest

from . import settings

if TYPE_CHECKING:
    import torch

__all__ = ["device"]

MARKS = (
    "accel: needs the device accel; skipped without --accel",
    "accel_memory(size): accel has only that much memory during the test, as '64MiB'; no effect without --accel",
    "accel_waits(most): the host waits a line outside the tests may make in the test; no effect without --accel",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--accel`` takes no value, or `pytest --accel tests` would take the folder for one: each mode is an option."""
    group = parser.getgroup("accel", "tests on the device accel (torch_accel)")
    group.addoption(
        "--accel",
        action="store_const",
        const="plain",
        dest="accel",
        default=None,
        help="run on accel: the fixture `device` is accel:0 instead of the CPU",
    )
    group.addoption(
        "--accel=strict",
        action="store_const",
        const="strict",
        dest="accel",
        help="and catch what a GPU would break: poisoned memory, shaken schedules, the stream sanitizer, hidden waits",
    )
    group.addoption(
        "--accel-seed",
        type=int,
        default=None,
        metavar="N",
        help="the schedule of --accel=strict, to repeat a failure (default: another one each time)",
    )
    group.addoption(
        "--accel-as-cuda",
        action="store_true",
        default=False,
        help="run what says cuda on accel (implies --accel)",
    )
    group.addoption(
        "--accel-capability",
        default=None,
        metavar="X.Y",
        help="with --accel-as-cuda: what torch.cuda.get_device_capability() says (default: it raises)",
    )
    parser.addini(
        "accel_waits",
        f"host waits that --accel=strict lets one line outside the tests make in a test ({settings.MOST_WAITS})",
        default=str(settings.MOST_WAITS),
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before any conftest.py can use the device, which reads its variables once."""
    _begin(early_config, early_config.known_args_namespace)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Declares the marks, and begins if the plugin came too late for the hook above, as from a conftest.py."""
    for mark in MARKS:
        config.addinivalue_line("markers", mark)
    _begin(config, config.option)


def _begin(config: pytest.Config, options: argparse.Namespace) -> None:
    if config.pluginmanager.has_plugin("accel-run") or not (options.accel or options.accel_as_cuda):
        return
    if options.accel_capability is not None and not options.accel_as_cuda:
        raise pytest.UsageError("--accel-capability is what --accel-as-cuda shall say: add that option")
    chosen = settings.choose(options.accel or "plain", options.accel_seed, options.accel_as_cuda)
    # xdist gives its workers the options as they are here.
    config.option.accel, config.option.accel_seed = chosen.mode, chosen.seed
    from .run import Run

    run = Run(config, chosen, options.accel_as_cuda, settings.capability(options.accel_capability))
    config.pluginmanager.register(run, "accel-run")
    config.add_cleanup(run.close)
    run.open()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips what needs accel where it was not asked for."""
    if not config.pluginmanager.has_plugin("accel-run"):
        for item in items:
            if item.get_closest_marker("accel"):
                item.add_marker(pytest.mark.skip(reason="needs the device accel: pytest --accel"))


@pytest.fixture(scope="session")
def device(pytestconfig: pytest.Config) -> torch.device:
    """The device under test: ``accel:0`` under --accel, ``cpu`` otherwise; equal to the ``device`` of its tensors."""
    import torch

    on_accel: Any = pytestconfig.pluginmanager.has_plugin("accel-run")
    return torch.device("accel", 0) if on_accel else torch.device("cpu")
