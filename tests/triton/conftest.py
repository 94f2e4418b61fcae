"""Triton with accel as its active driver, for the tests that ask for it."""

import pytest


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """A cache of objects that the tests of a process share."""
    return str(tmp_path_factory.mktemp("triton"))


@pytest.fixture
def accel(monkeypatch, cache):
    """Also where the installed package is older than its entry point."""
    import triton
    from triton.backends import Backend, backends
    from triton.runtime.driver import driver

    from _torch_accel_triton.compiler import AccelBackend
    from _torch_accel_triton.driver import AccelDriver

    monkeypatch.setattr(triton.knobs.cache, "dir", cache)
    monkeypatch.setitem(backends, "accel", Backend(AccelBackend, AccelDriver))
    before = driver._active
    driver.set_active(AccelDriver())
    yield driver.active
    driver.set_active(before)
