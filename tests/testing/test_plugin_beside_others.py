"""The pytest plugin beside pytest-xdist, pytest-asyncio, pytest-randomly and unittest."""

import re

from tests.testing.conftest import outcomes

SEEDS = """
    import os, pytest, torch

    @pytest.mark.parametrize("number", range(8))
    def test_seed(device, number, worker_id):
        seed = int(os.environ["ACCEL_SCHEDULE_SEED"])
        assert seed == 40 + int(worker_id.removeprefix("gw"))
        assert torch.accel.get_device_properties(0).total_memory == 2 << 30
        assert torch.ones(3, device=device).sum().item() == 3

    def test_fails(device):
        torch.ones(1 << 20, device=device)
        assert False
    """


def test_workers_have_seeds_of_their_own(project):
    ran = project.write(test_one=SEEDS).run("-n", "2", "-v", "--accel=strict", "--accel-seed", "40")
    assert outcomes(ran.stdout) == {"failed": 1, "passed": 8}
    assert "accel: worker gwN has schedule seed + N" in ran.stdout
    # The seed that repeats the failure is the worker's.
    worker = int(re.search(r"^\[gw(\d)\] .*FAILED .*test_fails", ran.stdout, flags=re.M)[1])
    assert f"schedule seed {40 + worker}: repeat with --accel=strict --accel-seed {40 + worker}" in ran.stdout
    # Figures of both workers come together.
    assert "peak memory of accel:0: 4.0 MiB of 2.0 GiB" in ran.stdout
    assert ran.stdout.count("host waits: ") == 1


def test_a_worker_that_crashes_has_no_figures(project):
    project.write(test_one="import os\n\ndef test_one(): pass\n\ndef test_crash(device): os._exit(3)\n")
    ran = project.run("-n", "2", "--accel")
    assert "crashed" in ran.stdout and "host waits" not in ran.stdout and "INTERNALERROR" not in ran.stdout


def test_asyncio(project):
    project.write(
        test_one="""
        import asyncio, pytest, pytest_asyncio, torch

        @pytest_asyncio.fixture
        async def x(device):
            await asyncio.sleep(0)
            return torch.ones(4, device=device)

        @pytest.mark.asyncio
        async def test_async(x):
            await asyncio.sleep(0)
            assert x.is_accel and x.sum().item() == 4

        @pytest.mark.asyncio
        async def test_late(x):
            torch._assert_async(torch.zeros_like(x[0]))
        """
    )
    ran = project.run("--accel=strict")
    assert outcomes(ran.stdout) == {"failed": 1, "passed": 1}
    assert "work that this test has queued on accel failed later" in ran.stdout


def test_randomly_and_unittest(project):
    """Tests of unittest are watched as others; the seed of the order is another one than that of the schedule."""
    project.write(
        test_one="""
        import os, unittest, torch

        class TestOne(unittest.TestCase):
            def test_value(self):
                assert os.environ["ACCEL_SCHEDULE_SEED"] == "7"
                self.assertEqual(torch.ones(3, device="accel").sum().item(), 3)

            def test_late(self):
                torch._assert_async(torch.zeros(1, device="accel"))

            def test_fails(self):
                self.fail("as it should")
        """
    )
    ran = project.run("--accel=strict", "--accel-seed=7", "-v", random_order=True)
    assert outcomes(ran.stdout) == {"failed": 2, "passed": 1}
    assert "Using --randomly-seed=" in ran.stdout
    assert "as it should" in ran.stdout and "work that this test has queued on accel failed later" in ran.stdout
