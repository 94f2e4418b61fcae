"""torch_accel.as_cuda(): programs that say "cuda" run on accel, and nothing of it stays.

tests/python/cuda_snippets has the programs, in the ways of public tutorials. A function is run as a CUDA program; beside it,
`<name>_on_cpu` says what it must return, or the function itself where it chooses the CPU when there is no CUDA (`EITHER`).
"""

import ctypes
import importlib.util
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from expecttest import assert_expected_inline

import torch_accel
from tests.python import test_parity as parity

# everything() reads every variable of torch.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.torch.distributed.reduce_op", "ignore:.torch.jit.script. is deprecated"
)

SNIPPETS = Path(__file__).parent / "cuda_snippets"


def load(name):
    """A module of SNIPPETS, imported anew: a program imports its names from torch.cuda when it starts."""
    spec = importlib.util.spec_from_file_location(f"cuda_snippet_{name}", SNIPPETS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def programs(name):
    """The names of the programs in a module of SNIPPETS."""
    module = load(name)
    with_partner = [found for found in vars(module) if f"{found}_on_cpu" in vars(module)]
    return with_partner + list(getattr(module, "EITHER", ()))


def on_cpu(value):
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: on_cpu(item) for key, item in value.items()}
    return [on_cpu(item) for item in value] if isinstance(value, (list, tuple)) else value


def assert_same(actual, expected, tolerance):
    if isinstance(expected, torch.Tensor) or type(expected) is float:
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
    elif isinstance(expected, list):
        assert len(actual) == len(expected)
        for pair in zip(actual, expected):
            assert_same(*pair, tolerance)
    elif isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key, value in expected.items():
            assert_same(actual[key], value, tolerance)
    else:
        assert actual == expected


def allocations():
    return torch.accel.memory_stats().get("allocation.all.allocated", 0)  # nothing before it is initialised


def check(name, program):
    """Runs one program as CUDA's and compares what it returns with the CPU."""
    without = load(name)
    torch.manual_seed(0)
    expected = on_cpu(getattr(without, f"{program}_on_cpu", getattr(without, program))())
    before = allocations()
    with torch_accel.as_cuda():
        with_cuda = load(name)
        torch.manual_seed(0)
        actual = on_cpu(getattr(with_cuda, program)())
    assert allocations() > before or name == "devices", "it ran on the CPU"
    assert_same(actual, expected, getattr(without, "TOLERANCE", {}).get(program, 0))


ALL = [(path.stem, program) for path in sorted(SNIPPETS.glob("*.py")) for program in programs(path.stem)]


def test_there_are_programs():
    assert len(ALL) >= 35 and len(set(ALL)) == len(ALL)


@pytest.mark.filterwarnings(
    "ignore:TypedStorage is deprecated",
    "ignore:.*set_default_tensor_type.. is deprecated",
    "ignore:.torch.cuda.amp.*is deprecated",
    "ignore:The AccumulateGrad node's stream does not match",  # as on CUDA
)
@pytest.mark.parametrize(("name", "program"), [pair for pair in ALL if pair[0] != "several_devices"])
def test_program(name, program):
    check(name, program)


@pytest.mark.parametrize("program", [program for name, program in ALL if name == "several_devices"])
def test_program_of_several_devices(two_devices, program):
    two_devices(f"from tests.python.test_as_cuda import check; check('several_devices', {program!r})")


class TestNames:
    """torch.cuda has accel's own at the names that docs/parity.md lists, and refuses the rest with the page's reasons."""

    WRAPPED = {"is_available", "graph"}  # in front of accel's own

    @pytest.fixture(autouse=True)
    def as_cuda(self):
        with torch_accel.as_cuda():
            yield

    @pytest.mark.parametrize("name", set(parity.SAME) - WRAPPED - {"default_generators", "has_half"})
    def test_the_same_name(self, name):
        for place in parity.NAMES[name]:
            assert parity.theirs(place) is parity.resolve(f"torch.accel.{place}"), place

    def test_values(self):
        assert torch.cuda.default_generators == torch.accel.default_generators and torch.cuda.has_half
        assert torch.cuda._initialized is True and not hasattr(torch.cuda, "fallback_report")

    def refusal(self, name):
        theirs = parity.theirs(name)
        with pytest.raises(NotImplementedError) as caught:
            theirs()
        return str(caught.value)

    @pytest.mark.parametrize("name", set(parity.ABSENT) - {"has_magma", "nccl.is_available"})
    def test_absent(self, name):
        row = parity.ABSENT[name][0]
        other = parity.re.match(r"As `([\w.]+)`", row)
        reason = parity.ABSENT[other[1]][0] if other else row
        assert self.refusal(name) == f"accel, which stands in for CUDA here, has no torch.cuda.{name}. {reason}"

    def test_absent_values(self):
        assert torch.cuda.has_magma is False
        with pytest.warns(UserWarning, match="not compiled with NCCL"):
            assert torch.cuda.nccl.is_available([torch.ones(1, device="cuda")]) is False

    # torch's name -> what stands there, where it is not an object of torch.accel or a refusal.
    ADAPTED = {
        "DeferredCudaCallError": lambda: issubclass(torch.cuda.DeferredCudaCallError, Exception),
        "Stream.cuda_stream": lambda: torch.cuda.Stream().cuda_stream > 0,
        "amp.amp_definitely_not_available": lambda: torch.cuda.amp.common.amp_definitely_not_available() is False,
        "clock_rate": lambda: torch.cuda.clock_rate() * 1000 == torch.cuda.get_device_properties().clock_khz,
        "get_device_capability": None,  # test_capability
        "jiterator": None,  # test_jiterator
        "list_gpu_processes": lambda: "process" in torch.cuda.list_gpu_processes("cuda:0"),
        **{name: None for name in parity.ANOTHER if name.startswith(("nvtx.", "profiler."))},  # devices.py
    }

    @pytest.mark.parametrize("name", [name for name in parity.ANOTHER if "(" not in name and "default_" not in name])
    def test_another_name(self, name):
        equivalent, *_ = parity.ANOTHER[name]
        ours = parity.resolve(equivalent.strip("`"))
        if name in self.ADAPTED:
            assert self.ADAPTED[name] is None or self.ADAPTED[name]()
        elif parity.theirs(name) is not ours:
            package = name.split(".")[0]
            reasons = {
                table[row][-1 if table is parity.ABSENT else 1]
                for table in (parity.ABSENT, parity.ANOTHER)
                for row in table
                if row.split(".")[0] == package
            }
            text = self.refusal(name)
            assert any(f"has no torch.cuda.{name}. {reason}" in text for reason in reasons), text
            assert package == "nccl" or text.endswith(f"Use {equivalent.strip('`')}.")

    def test_jiterator(self):
        with pytest.raises(NotImplementedError, match=r"Use torch\.accel\.numpy_kernel\.$"):
            torch.cuda.jiterator._create_jit_fn("template <typename T> T f(T x) { return x; }")

    def test_an_unpaired_range(self):
        assert torch.cuda.nvtx.range_pop() == -1
        assert [torch.cuda.nvtx.range_push(name) for name in "ab"] == [0, 1]
        assert [torch.cuda.nvtx.range_pop() for _ in range(3)] == [1, 0, -1]


def test_capability():
    with torch_accel.as_cuda():
        with pytest.raises(NotImplementedError) as caught:
            torch.cuda.get_device_capability()
        assert_expected_inline(
            str(caught.value),
            """accel, which stands in for CUDA here, has no compute capability: a number would name a chip that it is not. State the one that the program shall see: torch_accel.as_cuda(capability=(8, 0)).""",
        )
        properties = torch.cuda.get_device_properties(0)
        assert not hasattr(properties, "major")
        with torch_accel.as_cuda(capability=(8, 6)), torch_accel.as_cuda():
            assert torch.cuda.get_device_capability("cuda:0") == (8, 6) == (properties.major, properties.minor)
        assert not hasattr(properties, "minor")


def everything():
    """(owner, name) -> value of all that torch, its modules and its classes hold, and of what accel's classes do."""
    found = {}
    for path, module in list(sys.modules.items()):
        if path.split(".")[0] not in ("torch", "torch_accel"):
            continue
        owners = [module] + [
            v for v in list(vars(module).values()) if isinstance(v, type) and v.__module__.startswith("torch")
        ]
        for owner in owners:
            found.update({(owner, name): value for name, value in list(vars(owner).items())})
    return found


def different(before, after):
    """What has another value, or is gone."""
    return {key for key, value in before.items() if after.get(key, before) is not value}


def shown():
    device = torch.device("accel", 0)
    return repr(device), str(device), device.type, torch.device("cuda", 0).type


def test_nothing_stays():
    with torch_accel.as_cuda():
        pass  # imports what it needs
    before, said = everything(), shown()
    assert said == ("device(type='accel', index=0)", "accel:0", "accel", "cuda")
    with torch_accel.as_cuda():
        during = everything()
        changed = different(before, during) | different(during, before)
        assert shown() == ("device(type='cuda', index=0)", "cuda:0", "cuda", "cuda")
        assert torch.device("cuda", 0) == torch.device("accel", 0)
    after = everything()
    assert different(before, after) == different(after, before) == set() and shown() == said
    assert len(changed) > 300
    for owner, name in ((torch.Tensor, "is_cuda"), (torch.device, "type"), (torch.cuda, "default_generators")):
        assert (owner, name) in changed
    assert torch.device("cuda", 0) != torch.device("accel", 0)
    assert not torch.cuda.is_available() and not torch.ones(1, device="accel").is_cuda
    with pytest.raises(AssertionError, match="not compiled with CUDA"):
        torch.ones(1, device="cuda")


def test_an_error_within_puts_everything_back(monkeypatch):
    from torch_accel import _cuda_names

    before = everything()
    with pytest.raises(ZeroDivisionError), torch_accel.as_cuda():
        _ = 1 / 0
    assert different(before, everything()) == set()
    # And an error on the way in, when much is done already.
    monkeypatch.setattr(_cuda_names._C, "_AccelDeviceProperties", None)
    before = everything()
    with pytest.raises(TypeError):
        torch_accel.as_cuda()
    assert different(before, everything()) == set() and shown()[2:] == ("accel", "cuda")


def test_refused_where_there_is_a_real_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100")
    before = everything()
    with pytest.raises(RuntimeError) as caught:
        torch_accel.as_cuda()
    assert_expected_inline(
        str(caught.value),
        """torch_accel.as_cuda(): this machine has a real CUDA device (NVIDIA H100), which the program would no longer reach. Hide it with the environment variable CUDA_VISIBLE_DEVICES= (empty), or leave as_cuda() out.""",
    )
    assert different(before, everything()) == set() and shown()[2:] == ("accel", "cuda")


def test_refused_where_the_name_cannot_be_taken(monkeypatch):
    from torch_accel import _C

    monkeypatch.setattr(_C, "_redirect_cuda_name", lambda: 0)
    with pytest.raises(RuntimeError, match="this build of torch"):
        torch_accel.as_cuda()
    assert shown()[2:] == ("accel", "cuda")


def test_nested_and_overlapping():
    outer = torch_accel.as_cuda()
    inside = everything()
    with torch_accel.as_cuda():
        assert different(inside, everything()) == set()
    assert torch.cuda.is_available()
    later = torch_accel.as_cuda()
    outer.restore()  # not the last to begin
    outer.restore()
    assert torch.cuda.is_available() and torch.ones(1, device="cuda").is_cuda
    later.restore()
    assert not torch.cuda.is_available()


def test_every_thread():
    """A thread that runs already, one that is started within, and one whose own block ends later than this."""
    begun, entered, left = (threading.Event() for _ in range(3))
    seen = {}

    def early():
        seen["before"] = torch.cuda.is_available()
        begun.set()
        assert entered.wait(60)
        seen["within"] = torch.ones(2, device="cuda").is_cuda

    def overlapping():
        with torch_accel.as_cuda():
            entered.set()
            assert left.wait(60)
            seen["alone"] = torch.ones(2).cuda().device.type

    threads = [threading.Thread(target=early)]
    threads[0].start()
    assert begun.wait(60)
    with torch_accel.as_cuda():
        threads.append(threading.Thread(target=overlapping))
        threads[1].start()
        threads[0].join(60)
    assert torch.cuda.is_available()  # of the other thread
    left.set()
    threads[1].join(60)
    assert seen == {"before": False, "within": True, "alone": "cuda"}
    assert not torch.cuda.is_available() and shown()[2:] == ("accel", "cuda")


def test_torch_itself_is_told_accel():
    with torch_accel.as_cuda():
        x = torch.ones(2, 3, device="cuda")
        code = compile("(x.device.type, x.is_cuda, torch.cuda.is_available())", "<torch>", "eval")
        names = {"x": x, "torch": torch}
        assert eval(code, {**names, "__name__": "torch.nn.some.module"}) == ("accel", False, False)
        assert eval(code, {**names, "__name__": "torch_accel.memory"}) == ("accel", False, False)
        assert eval(code, {**names, "__name__": "torchvision.models"}) == ("cuda", True, True)
        assert eval(code, names) == ("cuda", True, True)
        assert torch._utils._get_available_device_type() == "accel"
        with pytest.raises(AttributeError, match="non-CUDA"):
            _ = x.__cuda_array_interface__


def test_scripts_and_operators_of_ones_own():
    with torch_accel.as_cuda():

        @torch.jit.script
        def add(x):
            return torch.ones(2, device="cuda") + x.to(torch.device("cuda:0"))

        assert add(torch.ones(2)).tolist() == [2, 2] and add(torch.ones(2)).is_cuda

        @torch.library.custom_op("as_cuda_test::double", mutates_args=(), device_types="cuda")
        def double(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        assert double(torch.ones(2, device="cuda")).tolist() == [2, 2]
        with pytest.raises(NotImplementedError, match="'CPU' backend"):
            double(torch.ones(2))


def test_checkpoints_of_a_cuda_machine(tmp_path, monkeypatch):
    """Files whose tensors are tagged "cuda:0"."""
    weights = torch.arange(3.0)
    monkeypatch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
    torch.save(weights, tmp_path / "weights.pt")
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.load(tmp_path / "weights.pt")
    with torch_accel.as_cuda():
        loaded = torch.load(tmp_path / "weights.pt")
        assert loaded.is_cuda and torch.equal(loaded.cpu(), weights)
        with pytest.raises(RuntimeError, match="device 7"):
            torch.load(tmp_path / "weights.pt", map_location="cuda:7")


def test_a_library_whose_slots_are_read_only(tmp_path):
    """As those of distributions that link with -z now: the slot is changed, and protected again."""
    source = tmp_path / "names.cpp"
    source.write_text("""
        #include <string>
        namespace c10 { struct Device { explicit Device(const std::string&); signed char type, index; }; }
        extern "C" int type_of(const char* name) { return c10::Device(name).type; }
    """)
    library = tmp_path / "names.so"
    lib = Path(torch.__file__).parent / "lib"
    command = [
        "g++",
        "-shared",
        "-fPIC",
        "-Wl,-z,relro,-z,now",
        source,
        f"-L{lib}",
        "-lc10",
        f"-Wl,-rpath,{lib}",
        "-o",
        library,
    ]
    subprocess.run(command, check=True)
    type_of = ctypes.CDLL(str(library)).type_of
    name = (ctypes.c_char_p(b"cuda:1"), ctypes.c_char_p(b"accel:1"))
    cuda, accel = map(type_of, name)
    assert cuda != accel
    protection = permissions(library)
    with torch_accel.as_cuda():
        assert list(map(type_of, name)) == [accel, accel] and permissions(library) == protection
    assert list(map(type_of, name)) == [cuda, accel] and permissions(library) == protection


def permissions(library):
    """How the pages of a library may be used."""
    return [line.split()[1] for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(str(library))]


def test_it_does_not_initialise_the_chip(script):
    """So that a program may fork after it, and ask for devices."""
    script("""
        import sys, torch, torch_accel
        assert "torch_accel.as_cuda" not in sys.modules
        torch_accel.as_cuda()
        assert torch.cuda.is_available() and torch.cuda.device_count() == 1 and not torch.cuda.is_initialized()
        assert torch.accel.as_cuda is torch_accel.as_cuda is sys.modules["torch_accel.as_cuda"]
        torch.manual_seed(0)
        assert not torch.accel.is_initialized()
    """)


def test_no_device(script):
    script(
        """
        import torch, torch_accel
        with torch_accel.as_cuda():
            assert not torch.cuda.is_available() and torch.cuda.device_count() == 0
            assert torch.device("cuda" if torch.cuda.is_available() else "cpu").type == "cpu"
    """,
        ACCEL_DEVICES="0",
    )


def test_command_line(tmp_path):
    (tmp_path / "helper.py").write_text("from torch.cuda import Stream\n")
    (tmp_path / "program.py").write_text(
        "import sys, torch, helper\n"
        "assert __name__ == '__main__' and helper.Stream is torch.accel.Stream\n"
        "print(sys.argv[1:], torch.ones(2).cuda())\n"
    )
    command = [sys.executable, "-m", "torch_accel.as_cuda"]
    ran = subprocess.run(
        [*command, tmp_path / "program.py", "--lr", "1"], capture_output=True, text=True, check=True, cwd=parity.ROOT
    )
    assert ran.stdout == "['--lr', '1'] tensor([1., 1.], device='cuda:0')\n"
    ran = subprocess.run(command, capture_output=True, text=True, cwd=parity.ROOT)
    assert ran.returncode == 1 and ran.stderr == "usage: python -m torch_accel.as_cuda program.py [arguments]\n"
