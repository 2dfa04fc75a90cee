#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`./dev COMMAND` in the Debian release that is supported beside this machine's: 13 on 12, 12 on 13.

Usage: other_release.py FOLDER COMMAND [ARGS]    FOLDER keeps the system and its build folder for the next run
Ends as the command does, or with 77 and a sentence where such a system cannot be made. Runs with less priority than what
is run beside it.
"""
import fcntl
import os
import pathlib
import shlex
import subprocess
import sys

import debian

SOURCES = pathlib.Path(__file__).resolve().parents[2]
PLACE = "/plexus"
INSIDE = "PLEXUS_OTHER_RELEASE"  # set there, whose tests have this one


def main():
    folder, *command = pathlib.Path(sys.argv[1]).resolve(), *sys.argv[2:]
    if INSIDE in os.environ:
        debian.skip("this is the other release already")
    name = debian.release("other")
    debian.check_tools()
    folder.mkdir(parents=True, exist_ok=True)
    os.nice(10)
    with open(folder / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the end: one command at a time
        base, build = folder / name, folder / "build"
        debian.make_base(base, name)
        for path in (build, base / PLACE.lstrip("/"), SOURCES / "build"):
            path.mkdir(exist_ok=True)
        system = debian.System(base, [(SOURCES, PLACE, False), (build, f"{PLACE}/build", True)])
        debian.say(f"Debian {name}: ./dev {' '.join(command)}")
        ended = subprocess.run(system.command(f"exec {PLACE}/dev {shlex.join(command)}", f"{INSIDE}=1"),
                               stdin=subprocess.DEVNULL, check=False)
        sys.exit(ended.returncode)


if __name__ == "__main__":
    main()
