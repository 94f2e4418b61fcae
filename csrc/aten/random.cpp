// Random operators: the in-place fills, the forms of normal and bernoulli without a composite
// kernel, and native_dropout.
//
// Argument checks and their texts are torch's own: the templates of
// ATen/native/DistributionTemplates.h, which CPU and CUDA share, take our kernels as they take
// theirs. A kernel reserves one key and enqueues a loop of random_kernels.cpp; with ACCEL_RNG=cpu
// it runs the CPU's kernel in stream order instead, and waits for it.
#include <ATen/MemoryOverlap.h>
#include <ATen/core/op_registration/adaption.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <mutex>
#include <optional>
#include <tuple>

#include "../runtime/generator.h"
#include "../runtime/stream.h"
#include "launch.h"
#include "random_kernels.h"

namespace accel {

namespace {

using OptionalGenerator = std::optional<at::Generator>;
namespace templates = at::native::templates;

// Fills `self` with philox(alias, key) on the worker.
template <class Philox>
void fill_philox(
    const char* name,
    const at::Tensor& self,
    GeneratorImpl* generator,
    const Philox& philox) {
  at::assert_no_internal_overlap(self);
  launch(
      name,
      current_stream(self.device().index()),
      {writes(self)},
      [key = reserve_key(generator), philox](at::TensorList t) { philox(t[0], key.resolve()); });
}

// Fills `self` with cpu(alias, generator) on the worker, where the generator wraps the CPU's.
template <class Cpu>
void fill_cpu(const char* name, const at::Tensor& self, GeneratorImpl* generator, const Cpu& cpu) {
  launch_and_wait(
      name,
      current_stream(self.device().index()),
      {writes(self)},
      [&](at::TensorList t) { cpu(t[0], generator->cpu()); },
      name);
}

template <class Philox, class Cpu>
void fill(
    const char* name,
    const at::Tensor& self,
    const OptionalGenerator& generator,
    const Philox& philox,
    const Cpu& cpu) {
  GeneratorImpl* impl = generator_or_default(generator, self.device());
  if (impl->cpu()) {
    fill_cpu(name, self, impl, cpu);
  } else {
    fill_philox(name, self, impl, philox);
  }
}

// The CPU's set of dtypes, refused at the call in torch's wording.
void check_dtype(const char* kernel, at::ScalarType dtype, bool supported) {
  TORCH_CHECK_NOT_IMPLEMENTED(supported, '"', kernel, "\" not implemented for '", dtype, "'");
}

bool is_floating(at::ScalarType t) {
  return t == at::kDouble || t == at::kFloat || t == at::kHalf || t == at::kBFloat16;
}

// Without bool and the unsigned types beyond 8 bits.
bool is_number(at::ScalarType t) {
  return is_floating(t) || t == at::kByte || t == at::kChar || t == at::kShort || t == at::kInt ||
      t == at::kLong;
}

// ---- Kernels in the shape of the templates
// ------------------------------------------------------------------------------------------------------------------------

template <class>
struct Uniform {
  void operator()(
      at::TensorIteratorBase& iter,
      double from,
      double to,
      const OptionalGenerator& generator) {
    fill(
        "uniform_",
        iter.tensor(0),
        generator,
        [=](const at::Tensor& t, Key key) { random::uniform(t, key, from, to); },
        [=](const at::Tensor& t, const OptionalGenerator& cpu) { t.uniform_(from, to, cpu); });
  }
};

template <class>
struct Normal {
  void
  operator()(const at::Tensor& self, double mean, double std, const OptionalGenerator& generator) {
    check_dtype("normal_kernel_accel", self.scalar_type(), is_floating(self.scalar_type()));
    fill(
        "normal_",
        self,
        generator,
        [=](const at::Tensor& t, Key key) { random::normal(t, key, mean, std); },
        [=](const at::Tensor& t, const OptionalGenerator& cpu) { t.normal_(mean, std, cpu); });
  }
};

template <class>
struct LogNormal {
  void operator()(
      at::TensorIteratorBase& iter,
      double mean,
      double std,
      const OptionalGenerator& generator) {
    check_dtype("log_normal_accel", iter.dtype(), is_floating(iter.dtype()));
    fill(
        "log_normal_",
        iter.tensor(0),
        generator,
        [=](const at::Tensor& t, Key key) { random::log_normal(t, key, mean, std); },
        [=](const at::Tensor& t, const OptionalGenerator& cpu) { t.log_normal_(mean, std, cpu); });
  }
};

template <class>
struct Exponential {
  void operator()(at::TensorIteratorBase& iter, double lambda, const OptionalGenerator& generator) {
    TORCH_CHECK(
        at::isFloatingType(iter.dtype()),
        "Exponential distribution is a continuous probability distribution. dtype must be a "
        "floating point but you specified ",
        iter.dtype());
    check_dtype("exponential_accel", iter.dtype(), is_floating(iter.dtype()));
    fill(
        "exponential_",
        iter.tensor(0),
        generator,
        [=](const at::Tensor& t, Key key) { random::exponential(t, key, lambda); },
        [=](const at::Tensor& t, const OptionalGenerator& cpu) { t.exponential_(lambda, cpu); });
  }
};

template <class>
struct Cauchy {
  void operator()(
      at::TensorIteratorBase& iter,
      double median,
      double sigma,
      const OptionalGenerator& generator) {
    check_dtype("cauchy_accel", iter.dtype(), is_floating(iter.dtype()));
    fill(
        "cauchy_",
        iter.tensor(0),
        generator,
        [=](const at::Tensor& t, Key key) { random::cauchy(t, key, median, sigma); },
        [=](const at::Tensor& t, const OptionalGenerator& cpu) { t.cauchy_(median, sigma, cpu); });
  }
};

template <class>
struct Geometric {
  void operator()(at::TensorIteratorBase& iter, double p, const OptionalGenerator& generator) {
    check_dtype("geometric_accel", iter.dtype(), is_number(iter.dtype()));
    fill(
        "geometric_",
        iter.tensor(0),
        generator,
        [=](const at::Tensor& t, Key key) { random::geometric(t, key, p); },
        [=](const at::Tensor& t, const OptionalGenerator& cpu) { t.geometric_(p, cpu); });
  }
};

template <class>
struct Bernoulli {
  void operator()(const at::Tensor& self, double p, const OptionalGenerator& generator) {
    check_dtype(
        "bernoulli_scalar_accel",
        self.scalar_type(),
        is_number(self.scalar_type()) || self.scalar_type() == at::kBool);
    fill(
        "bernoulli_",
        self,
        generator,
        [=](const at::Tensor& t, Key key) { random::bernoulli(t, key, p); },
        [=](const at::Tensor& t, const OptionalGenerator& cpu) { t.bernoulli_(p, cpu); });
  }

  void operator()(const at::Tensor& self, const at::Tensor& p, const OptionalGenerator& generator) {
    check_dtype(
        "bernoulli_tensor_accel",
        self.scalar_type(),
        is_number(self.scalar_type()) || self.scalar_type() == at::kBool);
    check_dtype("bernoulli_tensor_accel_p", p.scalar_type(), is_floating(p.scalar_type()));
    // A CPU tensor of probabilities travels with the launch; one of another device is copied first,
    // as in torch.cuda.
    const at::Tensor near = p.is_cpu() ? p : p.to(self.device());
    const auto probabilities = at::expand_inplace(self, near, "bernoulli_");
    GeneratorImpl* impl = generator_or_default(generator, self.device());
    const c10::Stream stream = current_stream(self.device().index());
    if (impl->cpu()) {
      launch_and_wait(
          "bernoulli_",
          stream,
          {writes(self), reads(*probabilities)},
          [&](at::TensorList t) { t[0].bernoulli_(t[1], impl->cpu()); },
          "bernoulli_");
      return;
    }
    launch(
        "bernoulli_",
        stream,
        {writes(self), reads(*probabilities)},
        [key = reserve_key(impl)](at::TensorList t) {
          random::bernoulli(t[0], key.resolve(), t[1]);
        });
  }
};

template <class>
struct Random {
  void operator()(at::TensorIteratorBase& iter, const OptionalGenerator& generator) {
    check_dtype("random_accel", iter.dtype(), is_number(iter.dtype()) || iter.dtype() == at::kBool);
    fill(
        "random_",
        iter.tensor(0),
        generator,
        [](const at::Tensor& t, Key key) { random::full_range(t, key); },
        [](const at::Tensor& t, const OptionalGenerator& cpu) { t.random_(cpu); });
  }
};

template <class>
struct RandomFromTo {
  void operator()(
      at::TensorIteratorBase& iter,
      uint64_t range,
      int64_t base,
      const OptionalGenerator& generator) {
    GeneratorImpl* impl = generator_or_default(generator, iter.tensor(0).device());
    fill_philox("random_", iter.tensor(0), impl, [=](const at::Tensor& t, Key key) {
      random::from_to(t, key, range, base);
    });
  }

  void operator()(at::TensorIteratorBase& iter, const OptionalGenerator& generator) {
    const at::ScalarType t = iter.dtype();
    check_dtype(
        "random_full_64_bits_range_accel",
        t,
        t == at::kLong || t == at::kDouble || t == at::kFloat || t == at::kBFloat16);
    GeneratorImpl* impl = generator_or_default(generator, iter.tensor(0).device());
    fill_philox("random_", iter.tensor(0), impl, [](const at::Tensor& self, Key key) {
      random::full_64_bits(self, key);
    });
  }
};

// ---- Operators
// ----------------------------------------------------------------------------------------------------------------------------------------------------

at::Tensor& uniform_(at::Tensor& self, double from, double to, OptionalGenerator generator) {
  return templates::uniform_impl_<Uniform, GeneratorImpl>(self, from, to, generator);
}

at::Tensor& normal_(at::Tensor& self, double mean, double std, OptionalGenerator generator) {
  return templates::normal_impl_<Normal, GeneratorImpl>(self, mean, std, generator);
}

at::Tensor normal_tensor_float(const at::Tensor& mean, double std, OptionalGenerator generator) {
  return templates::normal_impl<Normal, GeneratorImpl>(mean, std, generator);
}

// torch's template asks the values at the call; here the worker does.
void check_deviations(const at::Tensor& std) {
  TORCH_CHECK(!std.is_complex(), "normal expects standard deviation to be non-complex");
  if (std.numel() == 0) {
    return;
  }
  launch("normal", current_stream(std.device().index()), {reads(std)}, [](at::TensorList t) {
    TORCH_CHECK(t[0].min().ge(0).item<bool>(), "normal expects all elements of std >= 0.0");
  });
}

at::Tensor& scaled_normal(
    at::Tensor& out,
    const at::Tensor& mean,
    const at::Tensor& std,
    const OptionalGenerator& generator) {
  check_deviations(std);
  at::native::resize_output(out, at::infer_size(mean.sizes(), std.sizes()));
  templates::normal_impl_<Normal, GeneratorImpl>(out, 0, 1, generator);
  return out.mul_(std).add_(mean);
}

at::Tensor normal_float_tensor(double mean, const at::Tensor& std, OptionalGenerator generator) {
  auto out = at::empty_like(std, at::MemoryFormat::Contiguous);
  return scaled_normal(out, at::full({}, mean, out.options()), std, generator);
}

at::Tensor
normal_tensor_tensor(const at::Tensor& mean, const at::Tensor& std, OptionalGenerator generator) {
  auto out = at::empty(at::infer_size(mean.sizes(), std.sizes()), mean.options());
  return scaled_normal(out, mean, std, generator);
}

at::Tensor& normal_tensor_float_out(
    const at::Tensor& mean,
    double std,
    OptionalGenerator generator,
    at::Tensor& out) {
  return templates::normal_out_impl<Normal, GeneratorImpl>(out, mean, std, generator);
}

at::Tensor& normal_float_tensor_out(
    double mean,
    const at::Tensor& std,
    OptionalGenerator generator,
    at::Tensor& out) {
  return scaled_normal(out, at::full({}, mean, out.options()), std, generator);
}

at::Tensor& normal_tensor_tensor_out(
    const at::Tensor& mean,
    const at::Tensor& std,
    OptionalGenerator generator,
    at::Tensor& out) {
  return scaled_normal(out, mean, std, generator);
}

at::Tensor& log_normal_(at::Tensor& self, double mean, double std, OptionalGenerator generator) {
  return templates::log_normal_impl_<LogNormal, GeneratorImpl>(self, mean, std, generator);
}

at::Tensor& exponential_(at::Tensor& self, double lambda, OptionalGenerator generator) {
  return templates::exponential_impl_<Exponential, GeneratorImpl>(self, lambda, generator);
}

at::Tensor& cauchy_(at::Tensor& self, double median, double sigma, OptionalGenerator generator) {
  return templates::cauchy_impl_<Cauchy, GeneratorImpl>(self, median, sigma, generator);
}

at::Tensor& geometric_(at::Tensor& self, double p, OptionalGenerator generator) {
  return templates::geometric_impl_<Geometric, GeneratorImpl>(self, p, generator);
}

at::Tensor& bernoulli_float_(at::Tensor& self, double p, OptionalGenerator generator) {
  return templates::bernoulli_impl_<Bernoulli, GeneratorImpl>(self, p, generator);
}

at::Tensor& bernoulli_tensor_(at::Tensor& self, const at::Tensor& p, OptionalGenerator generator) {
  return templates::bernoulli_impl_<Bernoulli, GeneratorImpl>(self, p, generator);
}

at::Tensor& bernoulli_out(const at::Tensor& self, OptionalGenerator generator, at::Tensor& out) {
  std::optional<c10::Device> device;
  c10::impl::check_and_update_common_device(device, out, "aten::bernoulli", "out");
  c10::impl::check_and_update_common_device(device, self, "aten::bernoulli", "self");
  return templates::bernoulli_out_impl<Bernoulli, GeneratorImpl>(out, self, generator);
}

at::Tensor& random_(at::Tensor& self, OptionalGenerator generator) {
  return templates::random_impl<Random, GeneratorImpl>(self, generator);
}

at::Tensor& random_from_to_(
    at::Tensor& self,
    int64_t from,
    std::optional<int64_t> to,
    OptionalGenerator generator) {
  GeneratorImpl* impl = generator_or_default(generator, self.device());
  if (impl->cpu()) {
    // The templates move the bounds to what a floating dtype can hold, and must do so once only:
    // the CPU's operator gets the caller's, and does the checks.
    fill_cpu("random_", self, impl, [=](const at::Tensor& t, const OptionalGenerator& cpu) {
      t.random_(from, to, cpu);
    });
    return self;
  }
  return templates::random_from_to_impl<RandomFromTo, GeneratorImpl>(self, from, to, generator);
}

at::Tensor& random_to_(at::Tensor& self, int64_t to, OptionalGenerator generator) {
  return random_from_to_(self, 0, to, generator);
}

// As F.dropout draws on the CPU: noise in the input's dtype, divided in it.
void dropout_from_cpu(at::TensorList t, double p, const OptionalGenerator& cpu) {
  const at::Tensor noise = at::empty_like(t[2]).bernoulli_(1 - p, cpu);
  t[1].copy_(noise);
  at::Tensor out = t[0];
  at::mul_out(out, t[2], noise.div_(1 - p));
}

std::tuple<at::Tensor, at::Tensor>
native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  const auto mask_options = input.options().dtype(at::kBool);
  if (input.numel() == 0) {
    return {input, at::empty_like(input, mask_options)};
  }
  if (p == 0 || !train.value_or(true)) {
    return {input.clone(), at::ones_like(input, mask_options)};
  }
  if (p == 1) {
    return {at::zeros_like(input), at::zeros_like(input, mask_options)};
  }
  check_dtype(
      "native_dropout_accel",
      input.scalar_type(),
      is_floating(input.scalar_type()) || input.is_complex());
  at::Tensor out = at::empty_like(input);
  at::Tensor mask = at::empty_like(input, mask_options);
  GeneratorImpl* impl = generator_or_default(std::nullopt, input.device());
  const c10::Stream stream = current_stream(input.device().index());
  if (impl->cpu()) {
    launch_and_wait(
        "native_dropout",
        stream,
        {writes(out), writes(mask), reads(input)},
        [&](at::TensorList t) { dropout_from_cpu(t, p, impl->cpu()); },
        "native_dropout");
  } else {
    launch(
        "native_dropout",
        stream,
        {writes(out), writes(mask), reads(input)},
        [key = reserve_key(impl), p](at::TensorList t) {
          random::dropout(t[0], t[1], t[2], key.resolve(), p);
        });
  }
  return {out, mask};
}

at::Tensor native_dropout_backward(const at::Tensor& grad, const at::Tensor& mask, double scale) {
  const bool simple = mask.scalar_type() == at::kBool && mask.device() == grad.device() &&
      mask.sizes() == grad.sizes() && (is_floating(grad.scalar_type()) || grad.is_complex());
  if (!simple) {
    return at::mul(at::mul(grad, mask), scale); // the CPU's formula, which promotes and broadcasts
  }
  at::Tensor result = at::empty_like(grad);
  if (grad.numel() != 0) {
    launch(
        "native_dropout_backward",
        current_stream(grad.device().index()),
        {writes(result), reads(grad), reads(mask)},
        [scale](at::TensorList t) { random::dropout_backward(t[0], t[1], t[2], scale); });
  }
  return result;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("uniform_", TORCH_FN(uniform_));
  m.impl("normal_", TORCH_FN(normal_));
  m.impl("normal.Tensor_float", TORCH_FN(normal_tensor_float));
  m.impl("normal.float_Tensor", TORCH_FN(normal_float_tensor));
  m.impl("normal.Tensor_Tensor", TORCH_FN(normal_tensor_tensor));
  m.impl("normal.Tensor_float_out", TORCH_FN(normal_tensor_float_out));
  m.impl("normal.float_Tensor_out", TORCH_FN(normal_float_tensor_out));
  m.impl("normal.Tensor_Tensor_out", TORCH_FN(normal_tensor_tensor_out));
  m.impl("log_normal_", TORCH_FN(log_normal_));
  m.impl("exponential_", TORCH_FN(exponential_));
  m.impl("cauchy_", TORCH_FN(cauchy_));
  m.impl("geometric_", TORCH_FN(geometric_));
  m.impl("bernoulli_.float", TORCH_FN(bernoulli_float_));
  m.impl("bernoulli_.Tensor", TORCH_FN(bernoulli_tensor_));
  m.impl("bernoulli.out", TORCH_FN(bernoulli_out));
  m.impl("random_", TORCH_FN(random_));
  m.impl("random_.from", TORCH_FN(random_from_to_));
  m.impl("random_.to", TORCH_FN(random_to_));
  m.impl("native_dropout", TORCH_FN(native_dropout));
  m.impl("native_dropout_backward", TORCH_FN(native_dropout_backward));
}

} // namespace

} // namespace accel
