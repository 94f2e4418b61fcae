"""docs/parity.md explains every public name of torch.cuda and torch.accelerator, and is true."""

import importlib
import inspect
import pkgutil
import re
from types import ModuleType

import pytest
import torch

from tests.docs.markdown import ROOT

PAGE = ROOT / "docs/parity.md"
# Tables of the page: heading -> number of columns.
TABLES = {"The same name": 2, "Another name": 4, "Absent": 2}


def tables() -> dict[str, dict[str, list[str]]]:
    """Heading -> name -> the cells after it."""
    found: dict[str, dict[str, list[str]]] = {}
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.M)[1:]:
        heading = section.split("\n", 1)[0]
        rows = [row.strip("| ").split(" | ") for row in section.splitlines() if row.startswith("| `")]
        if rows:
            assert {len(row) for row in rows} == {TABLES[heading]}, heading
            assert len(rows) == len({row[0] for row in rows}), f"{heading}: two rows of one name"
            found[heading] = {row[0].strip("`"): row[1:] for row in rows}
    return found


ROWS = tables()
SAME, ANOTHER, ABSENT = (ROWS[heading] for heading in TABLES)


def modules(root: str) -> dict[str, ModuleType]:
    top = importlib.import_module(root)
    found = pkgutil.walk_packages(top.__path__, root + ".")
    names = [m.name for m in found if not any(part.startswith("_") for part in m.name.split("."))]
    return {root: top} | {name: importlib.import_module(name) for name in names}


def public(module: ModuleType) -> set[str]:
    """The names that a module exports or defines."""
    own = {n for n, v in vars(module).items() if n[0] != "_" and getattr(v, "__module__", "") == module.__name__}
    names = own | set(getattr(module, "__all__", ()))
    return {name for name in names if not isinstance(getattr(module, name), ModuleType)}


def cuda_names() -> dict[str, set[str]]:
    """Name without "torch.cuda." -> all the names under which the modules have it, that one included."""
    result: dict[str, set[str]] = {}
    for module_name, module in modules("torch.cuda").items():
        place = module_name.removeprefix("torch.cuda").lstrip(".")
        names = public(module)
        if not names:
            result[place] = {place}
        for name in names:
            # What a package re-exports goes under the package's name.
            short = name if getattr(torch.cuda, name, None) is getattr(module, name) else None
            package = place.split(".")[0]
            if short is None and "." in place and hasattr(getattr(torch.cuda, package), name):
                short = f"{package}.{name}"
            full = f"{place}.{name}" if place else name
            result.setdefault(short or full, {short or full}).add(full)
    return result


NAMES = cuda_names()


def resolve(path: str) -> object:
    """The object of a dotted name that begins with ``torch``."""
    value: object = torch
    for part in path.split(".")[1:]:
        value = getattr(value, part)
    return value


def theirs(name: str) -> object:
    return resolve(f"torch.cuda.{name}")


def cuda_methods(kind: type) -> set[str]:
    own = [base for base in kind.__mro__ if base.__module__.startswith("torch.cuda")]
    return {name for base in own for name in vars(base) if not name.startswith("_")}


def is_member(name: str) -> bool:
    """Whether a dotted name is an attribute of a class."""
    return "." in name and inspect.isclass(getattr(torch.cuda, name.split(".")[0], None))


def test_every_name_has_one_row():
    explained = [name for table in ROWS.values() for name in table]
    assert len(explained) == len(set(explained))
    parts = {name for name in explained if "(" in name or is_member(name)}
    missing = set(NAMES) - set(explained)
    assert not missing, "no row in docs/parity.md"
    assert not set(explained) - parts - set(NAMES), "torch.cuda has no such name"
    for part in parts:
        kind = getattr(torch.cuda, part.split(".")[0].split("(")[0])
        inside = part.split(".")[-1] if "." in part else part.split("(")[1].rstrip(")")
        assert hasattr(kind, inside) or inside in inspect.signature(kind).parameters or inside == "cuda_stream", part


@pytest.mark.parametrize("name", SAME)
def test_the_same_name(name):
    for place in NAMES[name]:
        assert resolve(f"torch.accel.{place}") is not None, place
    ours, original = resolve(f"torch.accel.{name}"), theirs(name)
    assert callable(ours) == callable(original)
    skipped = {part.split("(")[1].rstrip(")") for part in ANOTHER if part.startswith(f"{name}(")}
    if name.endswith(("Tensor", "Storage")):
        return  # torch's own methods, with which nobody calls a type
    if inspect.isclass(original):
        renamed = {part.split(".")[1] for part in ANOTHER if part.startswith(f"{name}.")}
        assert {method for method in cuda_methods(original) - renamed if not hasattr(ours, method)} == set()
    if callable(original):
        signatures = [inspect.signature(function).parameters for function in (original, ours)]
        expected = [p for p in signatures[0].values() if p.name not in skipped]
        names = [p.name.replace("cuda", "accel") for p in expected]
        assert list(signatures[1])[: len(expected)] == names  # ours may have more, at the end
        for mine, p in zip(names, expected, strict=True):
            default = "accel" if p.default == "cuda" else p.default
            assert default in (signatures[1][mine].default, inspect.Parameter.empty)


@pytest.mark.parametrize("name", ANOTHER)
def test_another_name(name):
    equivalent, reason, _ = ANOTHER[name]
    assert resolve(equivalent.strip("`")) is not None and reason.endswith(".")
    if re.fullmatch(r"[\w.]+", name):
        with pytest.raises(AttributeError):  # or it belongs to the first table
            resolve(f"torch.accel.{name}")


@pytest.mark.parametrize("name", ABSENT)
def test_absent(name):
    with pytest.raises(AttributeError):
        resolve(f"torch.accel.{name}")
    reason = ABSENT[name][0]
    other = re.fullmatch(r"As `([\w.]+)`(:.*)?\.", reason)
    assert reason.endswith(".") and (other is None or other[1] in ABSENT)


def test_the_tests_named_are_about_the_names():
    wrong = []
    for table in (SAME, ANOTHER):
        for name, cells in table.items():
            shown = cells[-1].strip("`")
            subject = name if table is SAME else cells[0].strip("`")
            text = (ROOT / shown).read_text()
            if not re.search(rf"\b{subject.split('.')[-1]}\b", text) or "def test_" not in text:
                wrong.append((name, shown))
    assert not wrong


def test_accelerator_is_complete():
    """tests/python/test_accelerator.py looks at what each does."""
    for module in modules("torch.accelerator").values():
        for name in public(module):
            assert hasattr(torch.accelerator, name) or module.__name__.endswith("_utils")
    assert set(torch.accelerator.__all__) <= {name for m in modules("torch.accelerator").values() for name in public(m)}


def test_a_name_without_a_row_would_be_noticed(monkeypatch):
    monkeypatch.setattr(torch.cuda, "__all__", [*torch.cuda.__all__, "teleport"])
    monkeypatch.setattr(torch.cuda, "teleport", lambda: None, raising=False)
    assert set(cuda_names()) - set(NAMES) == {"teleport"}


def test_ranges_show_in_torchs_profiler():
    """What the page offers in place of NVTX and of torch.cuda.profiler."""
    with torch.profiler.profile() as profiler, torch.profiler.record_function("a range"):
        torch.ones(3, device="accel").add(1)
    events = {event.name: event for event in profiler.events()}
    assert "a range" in events and "aten::add" in {child.name for child in events["a range"].cpu_children}
