"""Writes the structured operators of torch as C++: ``generate(folder, sources)``.

An operator is *structured* where torch splits it into a meta function (dtypes, sizes, strides) and a kernel.
For each group of one (add.Tensor, add_.Tensor, add.out) this writes one launch, whose kernel is the CPU's
``at::cpu::add_outf``, and a function for each form. ``structured.h`` has what they share.

The list comes from torchgen, which is part of torch: torch itself is generated from it.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torchgen
from torchgen.api import meta, structured
from torchgen.api.translate import translate
from torchgen.api.types import Binding, CppSignatureGroup, NativeSignature
from torchgen.context import native_function_manager
from torchgen.gen import get_grouped_native_functions, parse_native_yaml
from torchgen.model import DeviceCheckType, NativeFunction, NativeFunctionsGroup, SchemaKind

FILES = 8

#: structured operators that stay on the fallback -> why
EXCLUDED: dict[str, str] = {
    "triangular_solve.X": "its kernel gives outputs of the right shape other strides",
}

#: operator (all forms of a group by its functional one, or one form by its own name) -> statement that raises, at
#: the call, what the CPU's kernel would raise on the worker whatever the values are
HOST_CHECKS = {
    "_addmm_activation": "check_addend(self, mat1, mat2)",
    "addmm": "check_addend(self, mat1, mat2)",
    "gelu": "at::native::get_gelutype_enum(approximate)",
    "gelu_backward": "at::native::get_gelutype_enum(approximate)",
    "mean.out": "check_mean(out)",
    "renorm": "TORCH_CHECK(self.is_floating_point() || self.is_complex(), "
    '"linalg.vector_norm: Expected a floating point or complex tensor as input. Got ", self.scalar_type())',
}

#: groups whose meta function first asks for an output of the inputs' shape, and makes it the result's afterwards:
#: the kernel, given the result's shape, would warn of a resize that the caller did not ask for
RESIZED_BY_META = {"mse_loss", "smooth_l1_loss"}

#: operators whose result, of operands that are alike (structured.h), is one more like them
POINTWISE = {
    "add.Tensor",
    "div.Tensor",
    "exp",
    "gelu",
    "gelu_backward",
    "mul.Tensor",
    "neg",
    "rsqrt",
    "sigmoid",
    "sigmoid_backward",
    "silu",
    "sqrt",
    "sub.Tensor",
    "tanh",
    "tanh_backward",
}

HEADERS = {"at::native::get_gelutype_enum": "ATen/native/Gelu.h"}

#: types that are bytes already; the others go through pack()
PLAIN = re.compile(r"bool|int64_t|double|at::ScalarType|::std::optional<(bool|int64_t|double|at::ScalarType)>")
#: how torchgen passes an optional tensor to a meta function
OPTIONAL_TENSOR = re.compile(
    r"\(\((\w+)\.has_value\(\) && \(\*\1\)\.defined\(\)\) \? "
    r"at::OptionalTensorRef\(\*\1\) : at::OptionalTensorRef\(\)\)"
)
WIDTH = 100


def wrap(head: str, items: list[str], tail: str, indent: int = 0) -> str:
    """``head`` + comma-separated items + ``tail``, one item a line if it is too long for one line."""
    space = " " * indent
    line = f"{space}{head}{', '.join(items)}{tail}"
    if len(line) <= WIDTH:
        return line
    inner = ",\n".join(f"{space}    {item}" for item in items)
    return f"{space}{head}\n{inner}{tail}"


@dataclass
class Operand:
    """How an argument travels through the record, and what at::cpu::X_outf gets in its place."""

    #: an element of launch_operator's operands, or "" for a value that is captured
    operand: str = ""
    #: an element of the lambda's capture list
    capture: str = ""
    #: what the kernel is called with
    use: str = ""
    #: whether the kernel converts it to an element
    is_scalar: bool = False
    #: whether a long value is referred to
    may_be_long: bool = False
    #: whether this is the list of tensors, which comes last
    is_list: bool = False


class Group:
    """The C++ of one group of structured operators."""

    def __init__(self, group: NativeFunctionsGroup) -> None:
        self.group = group
        self.schema = group.functional.func
        self.id = meta.name(group)
        self.name = str(group.functional.func.name.name)
        self.returns = len(group.out.func.returns)

    @property
    def headers(self) -> list[str]:
        root = self.group.functional.root_name
        check = HOST_CHECKS.get(str(self.schema.name), "")
        extra = [header for function, header in HEADERS.items() if function in check]
        return [f"ATen/ops/{root}_cpu_dispatch.h", f"ATen/ops/{root}_meta.h", *extra]

    def outf(self) -> tuple[str, list[Binding]]:
        signatures = CppSignatureGroup.from_native_function(self.group.out, method=False, fallback_binding=False)
        signature = signatures.most_faithful_signature()
        return signature.name(), list(signature.arguments())

    def operands(self, arguments: list[Binding]) -> list[Operand]:
        outputs = [a.name for a in self.group.out.func.arguments.out]
        result = []
        position = len(outputs)
        for argument in arguments:
            name, kind = argument.name, argument.type
            if name in outputs:
                result.append(Operand(f"writes({name})", use=f"written(t, {outputs.index(name)})"))
            elif kind == "const at::Tensor &":
                result.append(Operand(f"reads({name})", use=f"t[{position}]"))
                position += 1
            elif kind == "const ::std::optional<at::Tensor> &":
                result.append(Operand(f"reads(or_undefined({name}))", use=f"or_none(t[{position}])"))
                position += 1
            elif kind == "const at::ITensorListRef &":
                result.append(Operand(name, is_list=True))
            elif PLAIN.fullmatch(kind):
                result.append(Operand(capture=name, use=name))
            elif kind in ("const at::Scalar &", "const ::std::optional<at::Scalar> &"):
                result.append(Operand(capture=f"{name} = pack({name})", use=f"{name}.unpack()", is_scalar=True))
            elif kind in (
                "at::IntArrayRef",
                "at::OptionalIntArrayRef",
                "c10::string_view",
                "::std::optional<c10::string_view>",
            ):
                result.append(Operand(capture=f"{name} = pack({name})", use=f"{name}.unpack()", may_be_long=True))
            else:
                raise NotImplementedError(f"{self.schema.name}: no way to put a {kind} into a record ({name})")
        for operand in result:
            if operand.is_list:
                operand.use = f"t.slice({position})"
        return result

    def launch(self) -> str:
        """The function that queues the kernel; outputs come first, then the arguments of the schema."""
        function, arguments = self.outf()
        outputs = [a.name for a in self.group.out.func.arguments.out]
        operands = self.operands(arguments)
        parameters = [f"const at::Tensor& {name}" for name in outputs]
        parameters += [parameter(a) for a in arguments if a.name not in outputs]
        writes = [o.operand for o in operands if o.operand.startswith("writes(")]
        reads = [o.operand for o in operands if o.operand.startswith("reads(")]
        lists = [o.operand for o in operands if o.is_list]
        tensors = "{" + ", ".join([*writes, *reads]) + "}"
        if lists:
            tensors = f"with_list({tensors}, {lists[0]})"
        captures = "[" + ", ".join(o.capture for o in operands if o.capture) + "]"
        long = [a.name for a, o in zip(arguments, operands) if o.may_be_long]
        call = wrap(f"at::cpu::{function}(", [o.use for o in operands], ");", 8)
        kernel = f"{captures}(at::TensorList t) {{ {call.strip()} }}"
        if str(self.schema.name) in RESIZED_BY_META:
            call = f"        const IgnoreWarnings ignore;\n{call}"
        if "\n" in call or len(kernel) > WIDTH - 8:
            kernel = f"{captures}(at::TensorList t) {{\n{call}\n      }}"
        pieces = [f'"{self.name}"', tensors, kernel]
        scalars = [a.name for a, o in zip(arguments, operands) if o.is_scalar]
        if scalars or long:
            pieces.append("{" + ", ".join(scalars) + "}")
        if long:
            pieces.append(" && ".join(f"pack({name}).fits()" for name in long))
        call = "  launch_operator(\n" + ",\n".join(f"      {piece}" for piece in pieces) + ");"
        return f"{wrap(f'void launch_{self.id}(', parameters, ') {')}\n{call}\n}}"

    def form(self, f: NativeFunction) -> str:
        """The function that the dispatcher calls for one form."""
        signature = NativeSignature(f.func, prefix="", symint=False)
        arguments = signature.arguments()
        kind = f.func.kind()
        size = f", {self.returns}" if self.returns > 1 else ""
        base = f"at::meta::structured_{self.id}"
        outs = [a.name for a in f.func.arguments.out]
        _, launch_arguments = self.outf()
        group_outs = [a.name for a in self.group.out.func.arguments.out]
        values = translated(arguments, [a for a in launch_arguments if a.name not in group_outs])
        check = HOST_CHECKS.get(str(f.func.name)) or HOST_CHECKS.get(str(self.schema.name))
        lines = []
        if str(self.schema.name) in POINTWISE and kind is not SchemaKind.out:
            lines.append(self.short_cut(f, values, check))
        if f.device_check != DeviceCheckType.NoCheck:
            tensors = [a for a in (*f.func.arguments.out, *f.func.arguments.flat_positional) if a.type.is_tensor_like()]
            if len(tensors) > 1 or any(a.type.is_list_like() is not None for a in tensors):
                names = [f'"{a.name}", {a.name}' for a in tensors]
                lines.append(
                    wrap("check_common_device(", [f'"aten::{f.func.name.name}"', "std::nullopt", *names], ");", 2)
                )
        if kind is SchemaKind.functional:
            lines.append(f"  Functional<{base}{size}> op;")
        elif kind is SchemaKind.inplace:
            lines.append(f"  Inplace<{base}> op(self);")
        else:
            lines.append(f"  Out<{base}{size}> op({', '.join(outs)});")
        exprs = translated(arguments, structured.meta_arguments(self.group))
        lines.append(wrap("op.meta(", exprs, ");", 2))
        if check:
            lines.append(f"  {check};")
        exprs = [f"op[{i}]" for i in range(self.returns)]
        lines.append(wrap(f"launch_{self.id}(", [*exprs, *values], ");", 2))
        if kind is SchemaKind.functional:
            lines.append("  return op.take();")
        elif kind is SchemaKind.inplace:
            lines.append("  return self;")
        elif len(outs) == 1:
            lines.append(f"  return {outs[0]};")
        else:
            lines.append(f"  return std::forward_as_tuple({', '.join(outs)});")
        head = wrap(
            f"{spaced(signature.returns_type().cpp_type())} {function_name(f)}(",
            [parameter(a) for a in arguments],
            ") {",
        )
        return "\n".join([head, *lines, "}"])

    def short_cut(self, f: NativeFunction, values: list[str], check: str | None) -> str:
        """The way around the meta function where the operands are alike."""
        tensors = [a.name for a in f.func.arguments.flat_positional if a.type.is_tensor_like()]
        conditions = [f"alike({', '.join(tensors)})"]
        inplace = f.func.kind() is SchemaKind.inplace
        if inplace:
            conditions += [f"apart(self, {name})" for name in tensors[1:]]
        scalars = [a.name for a in f.func.arguments.flat_non_out if str(a.type) == "Scalar"]
        conditions += [f"real({name})" for name in scalars]
        lines = [f"  if ({' && '.join(conditions)}) {{"]
        if check:
            lines.append(f"    {check};")
        if not inplace:
            lines.append(f"    auto out = make_alike({tensors[0]});")
        result = "self" if inplace else "out"
        lines.append(wrap(f"launch_{self.id}(", [result, *values], ");", 4))
        lines += [f"    return {result};", "  }"]
        return "\n".join(lines)

    def text(self, forms: list[NativeFunction]) -> str:
        """The whole group, restricted to `forms`."""
        with native_function_manager(self.group.out):
            parts = [f"// ---- {self.schema.name}", self.launch()]
        for f in forms:
            with native_function_manager(f):
                parts.append(self.form(f))
        return "\n\n".join(parts)


def translated(have: Sequence[Binding], want: Sequence[Binding]) -> list[str]:
    """C++ expressions for the arguments `want`, made of the variables `have`."""
    exprs = (e.expr for e in translate(have, want, method=False))
    return [OPTIONAL_TENSOR.sub(r"reference(\1)", e) for e in exprs]


def spaced(type_: str) -> str:
    return type_.replace(" &", "&")


def parameter(argument: Binding) -> str:
    return f"{spaced(argument.type)} {argument.name}"


def function_name(f: NativeFunction) -> str:
    overload = f.func.name.overload_name
    return f"{f.func.name.name}_{overload}" if overload else str(f.func.name.name)


def structured_groups() -> list[NativeFunctionsGroup]:
    """All groups of structured operators, by name."""
    folder = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
    parsed = parse_native_yaml(str(folder / "native_functions.yaml"), str(folder / "tags.yaml"))
    groups = get_grouped_native_functions(parsed.native_functions)
    chosen = [g for g in groups if isinstance(g, NativeFunctionsGroup) and g.structured]
    return sorted(chosen, key=lambda g: str(g.functional.func.name))


def hand_written(sources: Path) -> set[str]:
    """Operators that the C++ files in `sources` register for PrivateUse1."""
    blocks = re.compile(r"TORCH_LIBRARY_IMPL\(aten, PrivateUse1, m\) \{(.*?)\n\}", re.DOTALL)
    names = set()
    for path in sources.glob("*.cpp"):
        for block in blocks.findall(path.read_text()):
            names.update(re.findall(r'm\.impl\(\s*"([\w.]+)"', block))
    return names


def forms_of(groups: list[NativeFunctionsGroup], skip: set[str]) -> Iterator[tuple[Group, list[NativeFunction]]]:
    for group in groups:
        forms = [f for f in group.functions() if str(f.func.name) not in skip]
        if forms:
            yield Group(group), forms


def file_text(members: list[tuple[Group, list[NativeFunction]]]) -> str:
    """One translation unit: kernels and their registrations."""
    headers = sorted({header for group, _ in members for header in group.headers})
    includes = "\n".join(f"#include <{header}>" for header in headers)
    functions = "\n\n".join(group.text(forms) for group, forms in members)
    names = [(str(f.func.name), function_name(f)) for _, forms in members for f in forms]
    registrations = "\n".join(f'  m.impl("{name}", TORCH_FN({function}));' for name, function in names)
    first, last = members[0][0].schema.name, members[-1][0].schema.name
    return textwrap.dedent(
        """\
        // Structured operators, from {first} to {last}.
        // Written by csrc/aten/codegen/generate.py at the build; see structured.h for what it uses.
        #include "aten/structured.h"

        {includes}
        #include <torch/library.h>

        namespace accel {{

        namespace {{

        {functions}

        }} // namespace

        TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {{
        {registrations}
        }}

        }} // namespace accel
        """
    ).format(first=first, last=last, includes=includes, functions=functions, registrations=registrations)


def generate(folder: Path, sources: Path) -> list[Path]:
    """Writes the generated files to `folder`, touching only those that change, and returns them.

    Operators that the files of `sources` register by hand are left out, and those of EXCLUDED.
    """
    members = list(forms_of(structured_groups(), hand_written(sources) | set(EXCLUDED)))
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(FILES):
        share = members[number * len(members) // FILES : (number + 1) * len(members) // FILES]
        path = folder / f"structured_{number}.cpp"
        text = file_text(share)
        if not path.exists() or path.read_text() != text:
            temporary = path.with_suffix(".tmp")
            temporary.write_text(text)
            os.replace(temporary, path)
        paths.append(path)
    for stale in set(folder.glob("structured_*.cpp")) - set(paths):
        stale.unlink()
    return paths
