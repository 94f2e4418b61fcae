"""The text that the generator writes, for one operator of each kind."""

import sys
from pathlib import Path

import pytest
from expecttest import assert_expected_inline

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "csrc/aten/codegen"))
import generate  # noqa: E402


@pytest.fixture(scope="module")
def groups():
    return {str(group.functional.func.name): group for group in generate.structured_groups()}


def text(groups, name: str) -> str:
    group = groups[name]
    return generate.Group(group).text(list(group.functions()))


def test_pointwise(groups):
    assert_expected_inline(
        text(groups, "add.Tensor"),
        """\
// ---- add.Tensor

void launch_add_Tensor(
    const at::Tensor& out,
    const at::Tensor& self,
    const at::Tensor& other,
    const at::Scalar& alpha) {
  launch_operator(
      "add",
      {writes(out), reads(self), reads(other)},
      [alpha = pack(alpha)](at::TensorList t) {
        at::cpu::add_outf(t[1], t[2], alpha.unpack(), written(t, 0));
      },
      {alpha});
}

at::Tensor add_Tensor(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  if (alike(self, other) && real(alpha)) {
    auto out = make_alike(self);
    launch_add_Tensor(out, self, other, alpha);
    return out;
  }
  Functional<at::meta::structured_add_Tensor> op;
  op.meta(self, other, alpha);
  launch_add_Tensor(op[0], self, other, alpha);
  return op.take();
}

at::Tensor& add_out(
    const at::Tensor& self,
    const at::Tensor& other,
    const at::Scalar& alpha,
    at::Tensor& out) {
  Out<at::meta::structured_add_Tensor> op(out);
  op.meta(self, other, alpha);
  launch_add_Tensor(op[0], self, other, alpha);
  return out;
}

at::Tensor& add__Tensor(at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  if (alike(self, other) && apart(self, other) && real(alpha)) {
    launch_add_Tensor(self, self, other, alpha);
    return self;
  }
  Inplace<at::meta::structured_add_Tensor> op(self);
  op.meta(self, other, alpha);
  launch_add_Tensor(op[0], self, other, alpha);
  return self;
}""",
    )


def test_reduction_with_a_list_that_may_be_long(groups):
    assert_expected_inline(
        text(groups, "sum.dim_IntList"),
        """\
// ---- sum.dim_IntList

void launch_sum_dim_IntList(
    const at::Tensor& out,
    const at::Tensor& self,
    at::OptionalIntArrayRef dim,
    bool keepdim,
    ::std::optional<at::ScalarType> dtype) {
  launch_operator(
      "sum",
      {writes(out), reads(self)},
      [dim = pack(dim), keepdim, dtype](at::TensorList t) {
        at::cpu::sum_outf(t[1], dim.unpack(), keepdim, dtype, written(t, 0));
      },
      {},
      pack(dim).fits());
}

at::Tensor sum_dim_IntList(
    const at::Tensor& self,
    at::OptionalIntArrayRef dim,
    bool keepdim,
    ::std::optional<at::ScalarType> dtype) {
  Functional<at::meta::structured_sum_dim_IntList> op;
  op.meta(self, dim, keepdim, dtype);
  launch_sum_dim_IntList(op[0], self, dim, keepdim, dtype);
  return op.take();
}

at::Tensor& sum_IntList_out(
    const at::Tensor& self,
    at::OptionalIntArrayRef dim,
    bool keepdim,
    ::std::optional<at::ScalarType> dtype,
    at::Tensor& out) {
  Out<at::meta::structured_sum_dim_IntList> op(out);
  op.meta(self, dim, keepdim, dtype);
  launch_sum_dim_IntList(op[0], self, dim, keepdim, dtype);
  return out;
}""",
    )


def test_list_of_tensors(groups):
    assert_expected_inline(
        text(groups, "cat"),
        """\
// ---- cat

void launch_cat(const at::Tensor& out, const at::ITensorListRef& tensors, int64_t dim) {
  launch_operator(
      "cat",
      with_list({writes(out)}, tensors),
      [dim](at::TensorList t) { at::cpu::cat_outf(t.slice(1), dim, written(t, 0)); });
}

at::Tensor cat(const at::ITensorListRef& tensors, int64_t dim) {
  check_common_device("aten::cat", std::nullopt, "tensors", tensors);
  Functional<at::meta::structured_cat> op;
  op.meta(tensors, dim);
  launch_cat(op[0], tensors, dim);
  return op.take();
}

at::Tensor& cat_out(const at::ITensorListRef& tensors, int64_t dim, at::Tensor& out) {
  check_common_device("aten::cat", std::nullopt, "out", out, "tensors", tensors);
  Out<at::meta::structured_cat> op(out);
  op.meta(tensors, dim);
  launch_cat(op[0], tensors, dim);
  return out;
}""",
    )


def test_optional_tensors_and_several_outputs(groups):
    assert_expected_inline(
        text(groups, "nll_loss_forward"),
        """\
// ---- nll_loss_forward

void launch_nll_loss_forward(
    const at::Tensor& output,
    const at::Tensor& total_weight,
    const at::Tensor& self,
    const at::Tensor& target,
    const ::std::optional<at::Tensor>& weight,
    int64_t reduction,
    int64_t ignore_index) {
  launch_operator(
      "nll_loss_forward",
      {writes(output), writes(total_weight), reads(self), reads(target), reads(or_undefined(weight))},
      [reduction, ignore_index](at::TensorList t) {
        at::cpu::nll_loss_forward_outf(
            t[2],
            t[3],
            or_none(t[4]),
            reduction,
            ignore_index,
            written(t, 0),
            written(t, 1));
      });
}

::std::tuple<at::Tensor,at::Tensor> nll_loss_forward(
    const at::Tensor& self,
    const at::Tensor& target,
    const ::std::optional<at::Tensor>& weight,
    int64_t reduction,
    int64_t ignore_index) {
  check_common_device(
      "aten::nll_loss_forward",
      std::nullopt,
      "self", self,
      "target", target,
      "weight", weight);
  Functional<at::meta::structured_nll_loss_forward, 2> op;
  op.meta(self, target, reference(weight), reduction, ignore_index);
  launch_nll_loss_forward(op[0], op[1], self, target, weight, reduction, ignore_index);
  return op.take();
}

::std::tuple<at::Tensor&,at::Tensor&> nll_loss_forward_output(
    const at::Tensor& self,
    const at::Tensor& target,
    const ::std::optional<at::Tensor>& weight,
    int64_t reduction,
    int64_t ignore_index,
    at::Tensor& output,
    at::Tensor& total_weight) {
  check_common_device(
      "aten::nll_loss_forward",
      std::nullopt,
      "output", output,
      "total_weight", total_weight,
      "self", self,
      "target", target,
      "weight", weight);
  Out<at::meta::structured_nll_loss_forward, 2> op(output, total_weight);
  op.meta(self, target, reference(weight), reduction, ignore_index);
  launch_nll_loss_forward(op[0], op[1], self, target, weight, reduction, ignore_index);
  return std::forward_as_tuple(output, total_weight);
}""",
    )


def test_host_check(groups):
    assert "  at::native::get_gelutype_enum(approximate);\n" in text(groups, "gelu")


def test_a_type_that_cannot_travel_is_an_error(groups):
    with pytest.raises(NotImplementedError, match=r"index\.Tensor: no way to put a .*List.* into a record"):
        text(groups, "index.Tensor")


def test_hand_written_operators_are_found(tmp_path):
    (tmp_path / "some.cpp").write_text(
        'TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {\n  m.impl("add.Tensor", f);\n  m.impl(\n      "mul_.Tensor", f);\n}\n'
        'TORCH_LIBRARY_IMPL(aten, Conjugate, m) {\n  m.impl("sub.Tensor", f);\n}\n'
    )
    assert generate.hand_written(tmp_path) == {"add.Tensor", "mul_.Tensor"}


def test_files_are_written_only_when_they_change(tmp_path):
    first = generate.generate(tmp_path / "out", ROOT / "csrc/aten")
    assert len(first) == generate.FILES
    (tmp_path / "out/structured_99.cpp").write_text("left by another version")
    stamps = [path.stat().st_mtime_ns for path in first]
    changed = first[0].read_text()
    first[1].write_text("stale")
    assert generate.generate(tmp_path / "out", ROOT / "csrc/aten") == first
    assert [path.stat().st_mtime_ns for path in first[2:]] == stamps[2:] and first[0].read_text() == changed
    assert first[1].read_text() != "stale"
    assert sorted((tmp_path / "out").iterdir()) == sorted(first)


def test_every_form_is_registered_once(tmp_path):
    written = "".join(path.read_text() for path in generate.generate(tmp_path, ROOT / "csrc/aten"))
    skipped = generate.hand_written(ROOT / "csrc/aten") | set(generate.EXCLUDED)
    for group in generate.structured_groups():
        for f in group.functions():
            name = str(f.func.name)
            assert written.count(f'm.impl("{name}",') == (name not in skipped), name
