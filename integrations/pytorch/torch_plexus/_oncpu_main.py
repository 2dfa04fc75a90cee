# SPDX-License-Identifier: Apache-2.0
"""What a process imports in place of the script that spawned it under torch_plexus.oncpu: that script, on the CPU."""
import os
import runpy
import sys

from torch_plexus import oncpu

oncpu.patch()
_script = os.environ[oncpu.SCRIPT]
sys.path.insert(0, os.path.dirname(os.path.abspath(_script)))
globals().update(runpy.run_path(_script, run_name="__mp_main__"))
