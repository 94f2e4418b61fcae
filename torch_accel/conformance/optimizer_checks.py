"""The checks of an optimizer of torch's ``optim_db``: one function a kind of test, each comparing accel with the CPU.

Both devices take several steps from the same parameters with the same gradients and options. Parameters and state must
be the CPU's, bit for bit. torch refuses ``capturable`` on the CPU; here the CPU runs it too, so that both run the same
algorithm, and ``reference`` compares every algorithm with the plain one.
"""

from __future__ import annotations

import copy
import inspect
import io
import itertools
import re
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from .calls import DEVICE, grad, seeded, tensors
from .compare import Outcome, Replica, Tally, attempt
from .torch_internals import capturable_on_the_cpu, optimizer_error_inputs, optimizer_inputs

STEPS = 4
SHAPES = ((3, 4), (5,), (), (2, 3, 2), (0,))
MATRICES = ((3, 4), (4, 3), (2, 2))
#: optimizer -> the shapes that it takes, if not all
SHAPES_OF = {"Muon": MATRICES, "Adafactor": SHAPES[:-1]}
#: views its parameters as one vector
CONTIGUOUS = {"LBFGS"}

#: what torch does not step, on any device; anything else that the CPU raises is a fault of the check
REFUSALS = re.compile(
    r"does not support sparse|not compatible with sparse|add\(sparse, dense\) is not supported|"
    r"needed for gradient computation has been modified by an inplace|"
    r"cannot be converted to type c10::Half without overflow"  # a line search in float16
)

#: ways to run a step, of which at most one is chosen
IMPLEMENTATIONS = ("foreach", "fused", "differentiable")
#: what the second of two groups has of its own
OF_A_GROUP = {"lr": 0.05, "weight_decay": 0.2, "momentum": 0.5, "amsgrad": True, "nesterov": True, "maximize": True}
#: the state that stays on the host unless the step is fused or capturable; what loads it may leave it on either
COUNTERS = {"step", "mu_product"}
#: which have theirs on the device in every mode
COUNTERS_ON_DEVICE = {"ASGD"}


def _draw(
    shapes: Sequence[tuple[int, ...]], dtypes: Sequence[torch.dtype], number: int, transposed: bool = True
) -> list[torch.Tensor]:
    """Normal numbers in the dtypes in turn; the first matrix may be transposed."""
    generator = torch.Generator().manual_seed(number)
    made = [torch.randn(s, dtype=d, generator=generator) for s, d in zip(shapes, itertools.cycle(dtypes))]
    if transposed:
        made[0] = made[0].t().contiguous().t()
    return made


class Run:
    """An optimizer over parameters of its own on a device."""

    def __init__(
        self,
        info: Any,
        options: dict[str, Any],
        dtypes: torch.dtype | Sequence[torch.dtype],
        device: str,
        *,
        sparse: bool = False,
        groups: bool = False,
    ) -> None:
        """Makes the optimizer.

        Args:
            dtypes: of the parameters, taken in turn.
            sparse: gradients are sparse.
            groups: two groups, of which the second has options of its own.
        """
        self.info, self.device, self.sparse = info, device, sparse
        self.dtypes = (dtypes,) if isinstance(dtypes, torch.dtype) else dtypes
        self.shapes = MATRICES if sparse else SHAPES_OF.get(info.name, SHAPES)
        self.parameters = [torch.nn.Parameter(p) for p in self._place(self._draw(0))]
        options = tree_map_only(torch.Tensor, torch.clone, options)
        parameters: list[Any] = self.parameters
        if groups:
            known = inspect.signature(info.optim_cls).parameters
            own = {name: value for name, value in OF_A_GROUP.items() if name in known}
            parameters = [{"params": self.parameters[::2]}, {"params": self.parameters[1::2], **own}]
        self.optimizer = info.optim_cls(parameters, **options)
        self.loaded = False

    def _draw(self, number: int) -> list[torch.Tensor]:
        return _draw(self.shapes, self.dtypes, number, self.info.name not in CONTIGUOUS)

    def _place(self, values: list[torch.Tensor]) -> list[torch.Tensor]:
        return [Replica(self.device).tensor(value) for value in values]

    def _gradients(self, number: int) -> list[torch.Tensor]:
        values = self._draw(1 + number)
        if self.sparse:
            rows = torch.tensor([[1, 0, 1]])  # one of them twice
            values = [
                torch.sparse_coo_tensor(rows, torch.stack([v[0], v[1], v[-1]]), v.shape, check_invariants=True)
                for v in values
            ]
            return [value.to(self.device) for value in values]
        return self._place(values)

    def load(self, file: io.BytesIO) -> None:
        """Takes over what another run saved, wherever it was."""
        parameters, state = torch.load(file, map_location="cpu", weights_only=True)
        for mine, saved in zip(self.parameters, parameters, strict=True):
            mine.data.copy_(saved)
        self.optimizer.load_state_dict(state)
        self.loaded = True

    def step(self, number: int) -> Any:
        """One step; the result is the loss of an optimizer that asks for it."""
        gradients = self._gradients(number)
        if not self.info.step_requires_closure:
            for parameter, gradient in zip(self.parameters, gradients, strict=True):
                parameter.grad = gradient
            return self.optimizer.step()

        def closure() -> torch.Tensor:
            self.optimizer.zero_grad()
            terms = [((p - g).abs() ** 2).sum() for p, g in zip(self.parameters, gradients, strict=True)]
            loss = torch.stack(terms).sum()
            loss.backward()
            return loss

        return self.optimizer.step(closure)

    def _state(self) -> list[Any]:
        """The state in the order of the parameters, its counters on the device like the rest, after a look at where they are."""
        found = []
        for group in self.optimizer.param_groups:
            pinned = group.get("capturable") or group.get("fused")
            plain = self.device if self.info.name in COUNTERS_ON_DEVICE else "cpu"
            for parameter in group["params"]:
                for key, value in self.optimizer.state[parameter].items():
                    allowed = {self.device}
                    if self.info.name == "LBFGS" and key == "t":  # the learning rate, where the caller keeps it
                        allowed.add("cpu")
                    if key in COUNTERS and not pinned:
                        allowed = {"cpu", self.device} if self.loaded else {plain}
                    if not {t.device.type for t in tensors(value)} <= allowed:
                        raise AssertionError(f"{key} is not on {allowed}")
                    found.append((key, tree_map_only(torch.Tensor, lambda t: t.to(self.device), value)))
        return found

    def outcome(self) -> Any:
        """What the devices are compared by."""
        if any(p.device.type != self.device for p in self.parameters):
            raise AssertionError("a parameter left its device")
        return [p.detach() for p in self.parameters], [p.grad for p in self.parameters], self._state()


def options_of(info: Any, dtype: torch.dtype, implementation: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Labels and options of the database, with the implementation chosen by name."""
    for entry in optimizer_inputs(info, dtype):
        options = copy.deepcopy(entry.kwargs)
        options.update({name: name == implementation for name in info.supported_impls if name in IMPLEMENTATIONS})
        yield entry.desc, options


def _train(device: str, info: Any, options: dict[str, Any], dtypes: Any, **how: Any) -> Any:
    run = Run(info, options, dtypes, device, **how)
    losses = [run.step(number) for number in range(STEPS)]
    return losses, run.outcome()


def _both(tally: Tally, label: str, run: Any) -> None:
    with capturable_on_the_cpu():
        actual, expected = attempt(run, DEVICE), attempt(run, "cpu")
    if expected.error is not None and not REFUSALS.search(str(expected.error)):
        tally.fail(label, expected.error)
    else:
        tally.check(label, actual, expected)


def steps(info: Any, implementation: str | None, dtype: torch.dtype, tally: Tally) -> None:
    """Every set of options of the database."""
    for label, options in options_of(info, dtype, implementation):
        _both(tally, label, partial(_train, info=info, options=options, dtypes=dtype))


def forloop(info: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Parameter by parameter."""
    steps(info, None, dtype, tally)


def foreach(info: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Lists of tensors."""
    steps(info, "foreach", dtype, tally)


def fused(info: Any, dtype: torch.dtype, tally: Tally) -> None:
    """One operator for the whole step."""
    steps(info, "fused", dtype, tally)


def _implementations(info: Any) -> list[str | None]:
    return [None, *(name for name in ("foreach", "fused") if name in info.supported_impls)]


def device_options(info: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Options that are tensors, such as the learning rate, live on the device."""
    for implementation in _implementations(info):
        for label, options in options_of(info, dtype, implementation):
            if tensors(options):

                def run(device: str, options: dict[str, Any] = options) -> Any:
                    return _train(device, info, Replica(device)(options), dtype)

                _both(tally, f"{label} {implementation}", run)


def groups(info: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Two groups with options of their own, over parameters of several dtypes."""
    for implementation in _implementations(info):
        _, options = next(options_of(info, dtype, implementation))
        dtypes = (dtype, torch.float64, torch.bfloat16)
        _both(tally, str(implementation), partial(_train, info=info, options=options, dtypes=dtypes, groups=True))


def sparse(info: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Sparse gradients with a row given twice."""
    for implementation in _implementations(info):
        for label, options in options_of(info, dtype, implementation):
            run = partial(_train, info=info, options=options, dtypes=dtype, sparse=True)
            _both(tally, f"{label} {implementation}", run)


def reference(info: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Each implementation against the plain one on the CPU in float64, without ``capturable`` and tensors as options."""
    for implementation in _implementations(info):
        for label, options in options_of(info, dtype, implementation):
            plain = tree_map_only(torch.Tensor, torch.Tensor.item, options)
            plain.update({name: False for name in (*IMPLEMENTATIONS, "capturable") if name in plain})
            (_, (expected, *_)) = _train("cpu", info, plain, dtype)

            def match(options: dict[str, Any] = options, expected: list[torch.Tensor] = expected) -> None:
                (_, (actual, *_)) = _train(DEVICE, info, options, dtype)
                for a, e in zip(actual, expected, strict=True):
                    torch.testing.assert_close(a.cpu(), e, rtol=1e-6, atol=1e-7)

            tally.check(f"{label} {implementation}", attempt(match), Outcome())


def differentiable(info: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Gradients through one and two steps, of parameters and of their gradients. Not all are made for a second one."""

    def run(device: str, options: dict[str, Any], count: int) -> Any:
        replica = Replica(device)
        sources = [
            [replica.tensor(v).requires_grad_() for v in _draw(SHAPES, (dtype,), number)] for number in range(1 + count)
        ]
        parameters = [p.clone() for p in sources[0]]
        optimizer = info.optim_cls(parameters, **tree_map_only(torch.Tensor, torch.clone, options))
        for gradients in sources[1:]:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()
        found = grad(parameters, [t for list_ in sources for t in list_], seeded(parameters))
        if any(g is None for g in found[: len(parameters)]):
            raise AssertionError("a parameter has no gradient")
        return found

    for label, options in options_of(info, dtype, "differentiable"):
        for count in (1, 2):
            _both(tally, f"{label} {count}", partial(run, options=options, count=count))


def schedulers(info: Any, dtype: torch.dtype, tally: Tally) -> None:
    """The schedulers of the database change the learning rate between the steps."""
    choices = list(options_of(info, dtype, None))
    with_tensor = [(label, options) for label, options in choices if isinstance(options.get("lr"), torch.Tensor)]
    for (label, options), (index, makers) in itertools.product(
        [choices[0], *with_tensor[:1]], enumerate(info.scheduler_inputs)
    ):

        def run(device: str, options: dict[str, Any] = options, makers: Any = makers) -> Any:
            one = Run(info, options, dtype, device)
            made = [make(one.optimizer) for make in makers]
            rates = []
            for number in range(STEPS):
                one.step(number)
                for scheduler in made:
                    plateau = isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
                    scheduler.step(*([1.0] if plateau else []))
                rates.append([float(group["lr"]) for group in one.optimizer.param_groups])
            return rates, one.outcome()

        _both(tally, f"{label} {index}", run)


def travel(info: Any, dtype: torch.dtype, tally: Tally) -> None:
    """Saved on the device, loaded on the CPU for two steps, and back: as if it had never left the CPU."""

    def run(device: str, options: dict[str, Any]) -> Any:
        one = Run(info, options, dtype, device)
        for number, there in enumerate((device, "cpu", device)):
            file = io.BytesIO()
            torch.save((one.parameters, one.optimizer.state_dict()), file)
            file.seek(0)
            one = Run(info, options, dtype, there)
            one.load(file)
            one.step(2 * number)
            one.step(2 * number + 1)
            outcome = one.outcome()
        return outcome

    for implementation in _implementations(info):
        for label, options in options_of(info, dtype, implementation):
            _both(tally, f"{label} {implementation}", partial(run, options=options))


def errors(info: Any, dtype: torch.dtype, tally: Tally) -> None:
    """The error inputs of the database, those for CUDA too: the CPU's error at the same place, with the same text."""

    def run(device: str, role: str, index: int) -> None:
        entry = optimizer_error_inputs(info, device, dtype, role)[index].optimizer_error_input
        parameters = entry.params
        if parameters is None:
            parameters = [torch.nn.Parameter(torch.ones(2, 3, device=device, dtype=dtype))]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer = info.optim_cls(parameters, **entry.kwargs)
            optimizer.step()

    for role in ("cpu", "cuda"):
        for index, error_input in enumerate(optimizer_error_inputs(info, "cpu", dtype, role)):
            expected = attempt(run, "cpu", role, index)
            label = f"{role}: {error_input.optimizer_error_input.desc}"
            tally.check(label, attempt(run, DEVICE, role, index), expected)
