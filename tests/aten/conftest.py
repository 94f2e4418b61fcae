"""Fixtures of the operators' tests."""

import pytest

import torch_accel


@pytest.fixture
def no_leaked_workspace():
    before = torch_accel._C._leaked_workspace_bytes()
    yield
    assert torch_accel._C._leaked_workspace_bytes() == before
