# SPDX-License-Identifier: Apache-2.0
"""Files as docs/*.md print them, so that tests run what users read."""
import os
import pathlib
import re

DOCS = pathlib.Path(os.environ.get("PLEXUS_TEST_SOURCE_DIR", ".")) / "docs"
CLUSTER = "running-on-a-cluster.md"
FENCED = r"^```\w*\n(.*?)^```$"


def text(document=CLUSTER):
    return (DOCS / document).read_text()


def blocks(heading, document=CLUSTER):
    """The fenced blocks below `## HEADING`."""
    for section in re.split(r"^## ", text(document), flags=re.M):
        if section.startswith(f"{heading}\n"):
            return re.findall(FENCED, section, re.M | re.S)
    raise AssertionError(f"{document} has no section '{heading}'")


def block(name, document=CLUSTER):
    """The fenced block in which a line `# NAME` is among the first two."""
    for found in re.findall(FENCED, text(document), re.M | re.S):
        if f"# {name}" in found.splitlines()[:2]:
            return found
    raise AssertionError(f"{document} has no block that says `# {name}`")
