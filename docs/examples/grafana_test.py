#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The dashboard shows every metric, by the names and labels that `plexus doctor --metrics` writes and the page lists.

Usage: grafana_test.py RAS_METRICS_CPP OPERATING_MD GRAFANA_JSON
"""
import json
import pathlib
import re
import sys
import unittest

SOURCE, PAGE, DASHBOARD = map(pathlib.Path, sys.argv[1:4])
METRIC = re.compile(r"plexus_[a-z_]+")


class GrafanaTest(unittest.TestCase):
    def setUp(self):
        self.panels = json.loads(DASHBOARD.read_text())["panels"]
        self.listed = {row[1]: set(row[2].split(", ")) for row in re.finditer(r"(?m)^\| `(plexus_[a-z_]+)` \| ([a-z, ]+) \|", PAGE.read_text())}

    def test_metrics_are_those_of_the_command_and_of_the_page(self):
        shown = {name for panel in self.panels for target in panel["targets"] for name in METRIC.findall(target["expr"])}
        self.assertEqual(shown, set(re.findall(r'"(plexus_[a-z_]+)"', SOURCE.read_text())))
        self.assertEqual(shown, set(self.listed))

    def test_labels_are_those_of_the_metric(self):
        for panel in self.panels:
            for target in panel["targets"]:
                name, = METRIC.findall(target["expr"])
                asked = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
                by = re.search(r"by \(([a-z, ]+)\)", target["expr"])
                asked |= set(by[1].split(", ")) if by else set()
                self.assertLessEqual(asked, self.listed[name], panel["title"])

    def test_panels_lie_beside_each_other(self):
        places = [(x, y) for panel in self.panels for box in [panel["gridPos"]]
                  for x in range(box["x"], box["x"] + box["w"]) for y in range(box["y"], box["y"] + box["h"])]
        self.assertEqual(len(places), len(set(places)))
        self.assertLess(max(x for x, _ in places), 24)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
