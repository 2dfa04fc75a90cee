# SPDX-License-Identifier: Apache-2.0
"""Files as docs/*.md print them, so that tests run what users read."""
import os
import pathlib
import re

DOCS = pathlib.Path(os.environ.get("PLEXUS_TEST_SOURCE_DIR", ".")) / "docs"


def block(name, document="running-on-a-cluster.md"):
    """The fenced block in which a line `# NAME` is among the first two."""
    for text in re.findall(r"^```\w*\n(.*?)^```$", (DOCS / document).read_text(), re.M | re.S):
        if f"# {name}" in text.splitlines()[:2]:
            return text
    raise AssertionError(f"{document} has no block that says `# {name}`")
