# SPDX-License-Identifier: Apache-2.0
"""Debian systems in a folder, made by debootstrap: what the tests of this folder stand on.

Where there is no root, no debootstrap, no mirror or no namespaces, a test ends with 77 and a sentence.
"""
import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys
import urllib.error
import urllib.request

MIRROR = os.environ.get("PLEXUS_TEST_MIRROR", "http://deb.debian.org/debian")
OTHER = {"bookworm": "trixie", "trixie": "bookworm"}  # the releases that are supported, 12 and 13
PASSED_ON = re.compile("https?_proxy|CI|PLEXUS_(TORCH|LAUNCHERS|TEST_MIRROR)")  # variables that a system's commands get


def skip(sentence):
    print(f"skipped: {sentence}")
    sys.exit(77)


def say(text):
    print(f"{pathlib.Path(sys.argv[0]).stem}: {text}", flush=True)


def run(command, **options):
    ended = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           stdin=subprocess.DEVNULL, text=True, timeout=900, check=False, **options)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {ended.returncode}:\n{ended.stdout}")
    return ended.stdout


def expect(condition, sentence):
    if not condition:
        sys.exit(f"{pathlib.Path(sys.argv[0]).stem}: {sentence}")


def release(which):
    """The name of this machine's release (`own`), or of the other one that is supported (`other`)."""
    try:
        own = platform.freedesktop_os_release().get("VERSION_CODENAME")
    except OSError:
        own = None
    if own not in OTHER:
        skip(f"this is none of Debian's releases {', '.join(OTHER)}")
    return {"own": own, "other": OTHER[own]}[which]


class System:
    """A Debian in `root`. Every command has its own /proc, /dev and /dev/shm, gone when it ends. `binds`: folders of this
    machine by their place in it, and whether they can be written there."""

    def __init__(self, root, binds=()):
        self.root = root
        self.binds = binds

    def command(self, script, *more):
        """What runs `script` there, with more variables, NAME=VALUE."""
        root = shlex.quote(str(self.root))
        # The folder becomes a mount point first, so that its commands can change how "/" is shared, as `ip netns` does.
        mounts = [f"mount --bind {root} {root}", f"mount -t proc proc {root}/proc",
                  f"mount --rbind /dev {root}/dev", f"mount --make-rslave {root}/dev",
                  f"mount -t tmpfs tmpfs {root}/dev/shm", f"mount --bind -o ro /sys {root}/sys"]
        for source, place, is_written in self.binds:
            mounts.append(f"mount --bind -o {'rw' if is_written else 'ro'} {shlex.quote(str(source))} {root}{place}")
        variables = [f"{name}={value}" for name, value in os.environ.items() if PASSED_ON.fullmatch(name)]
        enter = shlex.join(["chroot", str(self.root), "/usr/bin/env", "-i", "HOME=/root", "LC_ALL=C.UTF-8",
                            "DEBIAN_FRONTEND=noninteractive", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", *variables, *more,
                            "sh", "-ec", script])
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-ec",
                "\n".join([*mounts, f"exec {enter}"])]

    def run(self, script):
        return run(self.command(script))

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
    tried = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--propagation", "private", "sh", "-ec",
                            "mount -t tmpfs tmpfs /mnt; mknod /mnt/null c 1 3; : > /mnt/null"],
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        skip(f"no file systems or devices can be made here, as in a container without privileges: {tried.stderr.strip()}")


def make_base(base, name, packages=()):
    """A minimal Debian of the release `name` with more packages, made once."""
    if (base / "ready").exists():
        return
    try:
        urllib.request.urlopen(f"{MIRROR}/dists/{name}/Release", timeout=20).close()
    except (urllib.error.URLError, OSError) as error:
        skip(f"no Debian mirror can be reached at {MIRROR} ({error}); PLEXUS_TEST_MIRROR names another")
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir(parents=True)
    say(f"making a Debian {name} in {base}")
    run(["debootstrap", "--variant=minbase", name, base, MIRROR])
    for file in ("etc/resolv.conf", "etc/hosts"):
        shutil.copy(f"/{file}", base / file)
    if packages:
        System(base).run(f"apt-get update -q && apt-get install -y -q --no-install-recommends {' '.join(packages)} && apt-get clean")
    (base / "ready").touch()
