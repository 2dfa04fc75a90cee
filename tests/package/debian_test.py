#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Debian packages in a fresh Debian 12: install, run, build against, remove.

Usage: debian_test.py FOLDER_FOR_THE_SYSTEM PACKAGE.deb...
Ends with 77 and a sentence where there is no root, no debootstrap or no mirror.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request

RELEASE = "bookworm"
MIRROR = os.environ.get("PLEXUS_TEST_MIRROR", "http://deb.debian.org/debian")
PACKAGES = ("libplexus0", "libplexus-dev", "plexus-plugins", "plexus-tools")
SUMS = "".join(f"rank {rank}: 10\n" for rank in range(4))  # what README's first program prints
CMAKE_PROJECT = """cmake_minimum_required(VERSION 3.24)
project(First C)
find_package(Plexus REQUIRED)
add_executable(first first.c)
target_link_libraries(first Plexus::plexus)
message(STATUS "command: ${Plexus_COMMAND}")
"""


def skip(sentence):
    print(f"skipped: {sentence}")
    sys.exit(77)


def say(text):
    print(f"debian_test: {text}", flush=True)


def run(command, **options):
    ended = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           stdin=subprocess.DEVNULL, text=True, timeout=900, check=False, **options)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {ended.returncode}:\n{ended.stdout}")
    return ended.stdout


def expect(condition, sentence):
    if not condition:
        sys.exit(f"debian_test: {sentence}")


class System:
    """A Debian in `root`. Every command has its own /proc, /dev and /dev/shm, gone when it ends."""

    def __init__(self, root):
        self.root = root

    def run(self, script):
        mounts = ("mount -t proc proc {0}/proc && mount --rbind /dev {0}/dev && mount --make-rslave {0}/dev && "
                  "mount -t tmpfs tmpfs {0}/dev/shm && mount --bind -o ro /sys {0}/sys && exec chroot {0} /usr/bin/env -i HOME=/root LC_ALL=C.UTF-8 "
                  "DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin {1} sh -ec \"$1\"")
        proxies = " ".join(f"{name}={value}" for name, value in os.environ.items()
                           if re.fullmatch("https?_proxy", name))
        return run(["unshare", "--mount", "--pid", "--fork", "--propagation", "private", "sh", "-ec",
                    mounts.format(self.root, proxies), "sh", script])

    def files(self):
        """All paths but those that apt and ldconfig keep for themselves."""
        own = re.compile(r"(proc|sys|dev|run|tmp|root|srv/first|var/(cache|log|lib/(apt|dpkg|systemd))|etc/ld\.so\.cache)(/|$)")
        found = set()
        for folder, folders, names in os.walk(self.root):
            inside = pathlib.Path(folder).relative_to(self.root)
            folders[:] = [name for name in folders if not own.match(str(inside / name))]
            found.update(str(inside / name) for name in folders + names if not own.match(str(inside / name)))
        return found


def check_tools(*more):
    """Skips where a Debian cannot be made."""
    if os.geteuid() != 0:
        skip("a Debian can be made and entered by root only")
    for tool in ("debootstrap", "unshare", "chroot", *more):
        if not shutil.which(tool):
            skip(f"there is no {tool}; apt-get install debootstrap util-linux binutils iproute2")


def make_base(base):
    """A minimal Debian with a compiler, made once."""
    if (base / "ready").exists():
        return
    try:
        urllib.request.urlopen(f"{MIRROR}/dists/{RELEASE}/Release", timeout=20).close()
    except (urllib.error.URLError, OSError) as error:
        skip(f"no Debian mirror can be reached at {MIRROR} ({error}); PLEXUS_TEST_MIRROR names another")
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir(parents=True)
    say(f"making a Debian {RELEASE} in {base}")
    run(["debootstrap", "--variant=minbase", RELEASE, base, MIRROR])
    shutil.copy("/etc/resolv.conf", base / "etc/resolv.conf")
    System(base).run("apt-get update -q && apt-get install -y -q --no-install-recommends gcc libc6-dev cmake make pkgconf "
                     "&& apt-get clean")
    (base / "ready").touch()


def check_no_run_path(system):
    libraries = system.run("dpkg -L " + " ".join(PACKAGES) + " | sort -u").split()
    for path in libraries:
        file = system.root / path.lstrip("/")
        if file.is_file() and file.read_bytes()[:4] == b"\x7fELF":
            expect("PATH" not in run(["readelf", "-d", file]).replace("plexus", ""), f"{path} has a run path")
    caches = system.run("ldconfig -p")
    expect("libcudart" not in caches, "ldconfig offers a stand-in as CUDA's runtime")


def check_command(system):
    say(system.run("plexus --version").strip())
    table = system.run("plexus perf all_reduce --ranks 4 -b 8 -e 1M -f 8 -c 1")
    expect(re.search(r"# Wrong elements    : 0 OK", table), f"plexus perf found wrong results:\n{table}")
    listed = system.run("plexus plugin list")
    expect("net-socket" in listed, f"plexus plugin list does not know net-socket:\n{listed}")
    system.run("plexus plugin check net-socket --only connect")


def check_programs(system, readme):
    source = re.search(r"```c\n(.*?)```", readme.read_text(), re.DOTALL)
    expect(source, "README.md has no program in C")
    folder = system.root / "srv/first"
    folder.mkdir(parents=True)
    (folder / "first.c").write_text(source.group(1))
    (folder / "CMakeLists.txt").write_text(CMAKE_PROJECT)
    say("README's first program by pkg-config")
    printed = system.run("cd /srv/first && cc first.c $(pkg-config --cflags --libs plexus) -o by-pkg-config && ./by-pkg-config")
    expect(printed == SUMS, f"the program by pkg-config printed:\n{printed}")
    system.run("cd /srv/first && cc first.c -lnccl -o by-name && ./by-name")
    say("README's first program by CMake")
    configured = system.run("cd /srv/first && cmake -B build && cmake --build build")
    expect("command: /usr/bin/plexus" in configured, f"find_package did not give the command:\n{configured}")
    printed = system.run("/srv/first/build/first")
    expect(printed == SUMS, f"the program by CMake printed:\n{printed}")


def main():
    folder, packages = pathlib.Path(sys.argv[1]).resolve(), [pathlib.Path(name).resolve() for name in sys.argv[2:]]
    expect(len(packages) == len(PACKAGES), f"there must be {len(PACKAGES)} packages, not {len(packages)}")
    check_tools("readelf")
    base, copy = folder / "base", folder / "copy"
    make_base(base)
    shutil.rmtree(copy, ignore_errors=True)
    run(["cp", "-a", "--reflink=auto", base, copy])
    system = System(copy)
    for package in packages:
        shutil.copy(package, copy / "tmp")
    say("installing the packages")
    # What they need first, so that only theirs differs between before and after.
    install = "apt-get install -y -q --no-install-recommends"
    system.run(f"apt-get update -q && {install} /tmp/*.deb && dpkg --purge {' '.join(PACKAGES)}")
    before = system.files()
    system.run(f"dpkg -i /tmp/*.deb && dpkg --audit")
    check_no_run_path(system)
    check_command(system)
    check_programs(system, pathlib.Path(__file__).resolve().parents[2] / "README.md")
    say("the libraries without tools and plugins")
    system.run("dpkg --purge plexus-tools plexus-plugins && /srv/first/build/first && cd /srv/first && cmake --fresh -B build")
    say("removing the packages")
    system.run("dpkg --purge libplexus-dev libplexus0")
    left = system.files() - before
    expect(not left, "left when the packages are removed: " + ", ".join(sorted(left)))
    shutil.rmtree(copy)
    say("all is well")


if __name__ == "__main__":
    main()
