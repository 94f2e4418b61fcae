"""Every public name of the Python package says what it is."""

import importlib
import inspect
import pkgutil

import pytest

import torch_accel


def public_modules() -> list[str]:
    found = pkgutil.walk_packages(torch_accel.__path__, "torch_accel.")
    # Test modules of the conformance suite hold classes that torch makes; its conftest sets the process up.
    names = [m.name for m in found if not any(p.startswith(("_", "test_", "conftest")) for p in m.name.split("."))]
    return ["torch_accel", *names]


def public_names(module) -> dict[str, object]:
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    own = {name: getattr(module, name) for name in names}
    return {
        name: value
        for name, value in own.items()
        if (inspect.isroutine(value) or inspect.isclass(value))
        and getattr(value, "__module__", "").startswith("torch_accel")
    }


@pytest.mark.parametrize("name", public_modules())
def test_documented(name):
    module = importlib.import_module(name)
    missing = [] if module.__doc__ else [name]
    for label, value in public_names(module).items():
        if not value.__doc__:
            missing.append(label)
        if inspect.isclass(value):
            missing += [
                f"{label}.{method}"
                for method, member in vars(value).items()
                if not method.startswith("_")
                and (inspect.isroutine(member) or isinstance(member, property))
                and not inspect.getdoc(member)
            ]
    assert not missing
