"""Accel as a vendor of FlagGems 5.0: ``GEMS_VENDOR=amd``, with the folder of this package first in ``PYTHONPATH``.

FlagGems' list of vendors is closed, and it imports ``_<vendor>`` by its plain name: this package is found before the one
of that name in FlagGems. No operator of FlagGems asks for "amd".
"""

import sys
import types

# Where FlagGems looks for erf and its kind, as triton.language.extra has no module of the device's name.
import triton.language.extra.libdevice  # noqa: F401
from backend_utils import VendorInfoBase

# FlagGems imports a module of torch.backends by the device's name, and reads nothing in it.
sys.modules.setdefault("torch.backends.accel", types.ModuleType("torch.backends.accel"))

vendor_info = VendorInfoBase(
    vendor_name="amd", device_name="accel", device_query_cmd="true", dispatch_key="PrivateUse1"
)

CUSTOMIZED_UNUSED_OPS = ()
