"""Builds torch_accel._C, the one extension, from csrc; everything else is in pyproject.toml."""

import os
import platform
import re
import shutil
import sys
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
# torch's import must not load the very extension that is about to be built.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
# A translation unit of torch takes up to 2 GB; ninja's default of cores + 2 exhausts small machines.
os.environ.setdefault("MAX_JOBS", "2")

if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
    sys.exit(f"torch_accel builds on Linux x86_64 and aarch64 only, not on {sys.platform} {platform.machine()}.")

import ninja  # noqa: E402
import torch  # noqa: E402
from torch.utils.cpp_extension import BuildExtension, CppExtension  # noqa: E402

VERSION = re.search(r'__version__ = "(.+?)"', (ROOT / "torch_accel/_version.py").read_text())[1]
TORCH = ".".join(VERSION.split(".")[:2])
if not torch.__version__.startswith(f"{TORCH}."):
    sys.exit(
        f"torch_accel {VERSION} is built against torch {TORCH}, but torch {torch.__version__} is installed: "
        f'run `pip install "torch=={TORCH}.*"` first.'
    )
os.environ["PATH"] = os.pathsep.join([ninja.BIN_DIR, os.environ.get("PATH", "")])

# DispatchStub's call signature depends on the instruction sets that libtorch was built for.
CPU_CAPABILITY = {
    "x86_64": ["-DHAVE_AVX2_CPU_DEFINITION", "-DHAVE_AVX512_CPU_DEFINITION"],
    "aarch64": [],
}[platform.machine()]


# What a user's own operators in C++ may include, as <torch_accel/aten/launch.h>; with all that these include.
PUBLIC_HEADERS = [
    "driver/accel.h",
    "driver/accel_graph.h",
    "driver/accel_trace.h",
    "runtime/backend_meta.h",
    "runtime/device.h",
    "runtime/error.h",
    "runtime/stream.h",
    "aten/launch.h",
]


class BuildExt(BuildExtension):
    """Writes the generated operators first, keeps object files where the next build finds them, and ships the headers."""

    def finalize_options(self):
        super().finalize_options()
        self.build_temp = str(Path("build", f"temp.{self.plat_name}-{sys.implementation.cache_tag}"))

    def run(self):
        if not (self.inplace or self.editable_mode):
            self.extensions[0].extra_link_args.append("-Wl,-s")  # developers' profilers read the names of functions
        sys.path.insert(0, str(ROOT / "csrc/aten/codegen"))
        from generate import generate

        # Not a source of the extension before: an sdist holds the generator, not what it writes.
        for path in generate(Path("build/generated"), ROOT / "csrc/aten"):
            self.extensions[0].sources.append(str(path))
        super().run()
        package = ROOT / "torch_accel" if self.inplace else Path(self.build_lib, "torch_accel")
        for header in PUBLIC_HEADERS:
            shipped = package / "include/torch_accel" / header
            shipped.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / "csrc" / header, shipped)


setup(
    ext_modules=[
        CppExtension(
            "torch_accel._C",
            sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("csrc/**/*.cpp")),
            include_dirs=[str(ROOT / "csrc")],
            extra_compile_args=[
                "-std=c++20",
                "-O2",
                "-g0",
                "-ffp-contract=off",  # random numbers are the same on every machine
                "-fno-math-errno",  # lets the compiler vectorise sqrt
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",
                "-fvisibility=hidden",
                "-DAT_PER_OPERATOR_HEADERS",
                *CPU_CAPABILITY,
            ],
            # Python's name for the library is torch's too: users' libraries ask for it by a name of its own.
            extra_link_args=["-Wl,-soname,libtorch_accel.so"],
        )
    ],
    cmdclass={"build_ext": BuildExt},
)
