"""Random numbers under ACCEL_DEVICES and ACCEL_RNG, in processes of their own."""

from expecttest import assert_expected_inline


def test_generator_of_another_device(script) -> None:
    output = script(
        """
        import torch
        try:
            torch.rand(3, device="accel:0", generator=torch.Generator("accel:1"))
        except RuntimeError as e:
            print(str(e).splitlines()[0])
        torch.accel.manual_seed_all(5)
        print(torch.equal(torch.rand(9, device="accel:0").cpu(), torch.rand(9, device="accel:1").cpu()))
        """,
        ACCEL_DEVICES="2",
    )
    assert_expected_inline(
        output.stdout.strip(),
        """\
Expected a generator of device accel:0 but found one of accel:1. Make it with torch.Generator('accel:0').
True""",
    )


def test_seeding_does_not_initialise(script) -> None:
    assert (
        script(
            'import torch; torch.manual_seed(3); torch.Generator("accel"); print(torch.accel.is_initialized())'
        ).stdout
        == "False\n"
    )


def test_unknown_generator_name(script) -> None:
    output = script(
        """
        import torch
        try:
            torch.Generator("accel")
        except RuntimeError as e:
            print(str(e).splitlines()[0])
        print(torch.rand(3).numel())
        """,
        ACCEL_RNG="mersenne",
    )
    assert_expected_inline(
        output.stdout.strip(),
        """\
accel: ACCEL_RNG=mersenne is not a random number generator. Set it to philox (the default) or cpu, before the process starts.
3""",
    )


# Each of these runs on both devices from one seed and must give the same bits.
CPU_MODE = """
import torch
import torch.nn.functional as F

calls = [
    lambda d: torch.rand(50, device=d),
    lambda d: torch.rand(5, dtype=torch.complex64, device=d),
    lambda d: torch.randn(50, device=d),
    lambda d: torch.randn(7, device=d),
    lambda d: torch.randn(50, dtype=torch.complex128, device=d),
    lambda d: torch.empty(6, 8, device=d).t().normal_(1, 2),
    lambda d: torch.randint(0, 1000, (50,), device=d),
    lambda d: torch.randperm(50, device=d),
    lambda d: torch.empty(50, device=d).uniform_(-3, 2),
    lambda d: torch.empty(50, dtype=torch.bfloat16, device=d).uniform_(),
    lambda d: torch.empty(50, device=d).exponential_(2.0),
    lambda d: torch.empty(50, device=d).cauchy_(1.0, 2.0),
    lambda d: torch.empty(50, device=d).log_normal_(0.5, 0.25),
    lambda d: torch.empty(50, dtype=torch.int64, device=d).geometric_(0.2),
    lambda d: torch.empty(50, device=d).bernoulli_(0.3),
    lambda d: torch.bernoulli(torch.linspace(0, 1, 50, device=d)),
    lambda d: torch.empty(50, dtype=torch.int64, device=d).random_(),
    lambda d: torch.empty(50, dtype=torch.float16, device=d).random_(0, 65504),
    lambda d: torch.empty(50, dtype=torch.int64, device=d).random_(-5, None),
    lambda d: torch.empty(50, dtype=torch.int64, device=d).random_(-(2**63), None),
    lambda d: torch.normal(torch.arange(50.0, device=d), torch.arange(50.0, device=d)),
    lambda d: torch.multinomial(torch.ones(50, device=d), 10),
    lambda d: torch.poisson(torch.full((50,), 3.0, device=d)),
    lambda d: torch.nn.init.kaiming_uniform_(torch.empty(8, 8, device=d)),
    lambda d: F.gumbel_softmax(torch.ones(50, device=d)),
    lambda d: F.alpha_dropout(torch.ones(50, device=d), training=True),
    lambda d: torch.empty(0, device=d).normal_(),
]
for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
    for shape in ((3,), (50,), (4, 3, 6, 5)):
        def dropout(d, dtype=dtype, shape=shape):
            x = torch.linspace(-2, 2, torch.Size(shape).numel()).to(dtype).view(shape).to(d)
            if x.dim() == 4:
                x = x.to(memory_format=torch.channels_last)
            x.requires_grad_()
            y = F.dropout(x, 0.3)
            (y * y).sum().backward()
            return torch.stack([y.detach(), x.grad])
        calls.append(dropout)

torch.manual_seed(1234)
expected = [call("cpu") for call in calls]
cpu_state = torch.get_rng_state()
torch.manual_seed(1234)
start = torch.get_rng_state()
wrong = [i for i, call in enumerate(calls) if not torch.equal(call("accel").cpu(), expected[i])]
print("wrong:", wrong)
print("state:", torch.equal(torch.accel.get_rng_state(), cpu_state), torch.equal(torch.get_rng_state(), start))
state = torch.accel.get_rng_state()
a = torch.randn(20, device="accel")
torch.accel.set_rng_state(state)
print("again:", torch.equal(a, torch.randn(20, device="accel")), torch.equal(a.cpu(), torch.randn(20, generator=torch.Generator().set_state(state))))
g = torch.Generator("accel").manual_seed(5)
print("own:", torch.equal(torch.rand(9, device="accel", generator=g).cpu(), torch.rand(9, generator=torch.Generator().manual_seed(5))))
print("clone:", torch.equal(torch.rand(9, device="accel", generator=g.clone_state()), torch.rand(9, device="accel", generator=g)))
for call in (g.get_offset, lambda: g.set_offset(4), lambda: torch.empty(3, device="accel").random_(3, 3)):
    try:
        call()
    except RuntimeError as e:
        print(str(e).splitlines()[0])
"""


def test_cpu_mode_draws_the_cpus_numbers(script) -> None:
    assert_expected_inline(
        script(CPU_MODE, ACCEL_RNG="cpu").stdout.strip(),
        """\
wrong: []
state: True True
again: True True
own: True
clone: True
accel: get_offset needs the Philox generator, but ACCEL_RNG=cpu draws the CPU's numbers, which have no offset. Unset ACCEL_RNG or use get_state.
accel: set_offset needs the Philox generator, but ACCEL_RNG=cpu draws the CPU's numbers, which have no offset. Unset ACCEL_RNG or use set_state.
random_ expects 'from' to be less than 'to', but got from=3 >= to=3""",
    )
