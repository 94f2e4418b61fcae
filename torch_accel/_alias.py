"""``torch.accel.x`` is ``torch_accel.x`` for the import system too, also for submodules that are imported late."""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_PREFIX = "torch.accel."


class _AliasLoader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module("torch_accel." + spec.name.removeprefix(_PREFIX))
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has put the alias's there


class _AliasFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, _AliasLoader()) if fullname.startswith(_PREFIX) else None


def install() -> None:
    """Puts the finder before the one that would load a second copy of a submodule from the package's folder."""
    sys.meta_path.insert(0, _AliasFinder())
