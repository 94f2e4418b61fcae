"""What Hugging Face's test suites read of a device: TRANSFORMERS_TEST_DEVICE_SPEC and DIFFUSERS_TEST_DEVICE_SPEC.

They import the file by its name, so it must lie in the folder where pytest runs: copy ``torch_accel.testing.DEVICE_SPEC``.
transformers reads the first four names and SINGLE_PROCESS_DEVICE, diffusers all but that.
"""

import torch

import torch_accel

DEVICE_NAME = "accel"
MANUAL_SEED_FN = torch.manual_seed  # seeds the host too, as both suites expect
EMPTY_CACHE_FN = torch_accel.empty_cache
DEVICE_COUNT_FN = torch_accel.device_count
SINGLE_PROCESS_DEVICE = False
SUPPORTS_TRAINING = True
RESET_PEAK_MEMORY_STATS_FN = torch_accel.reset_peak_memory_stats
RESET_MAX_MEMORY_ALLOCATED_FN = torch_accel.reset_peak_memory_stats
MAX_MEMORY_ALLOCATED_FN = torch_accel.max_memory_allocated
