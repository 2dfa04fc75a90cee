# SPDX-License-Identifier: Apache-2.0
import unittest

import check_figures
from case import TreeCase

PAGE = """# Speed
## near, 2 ranks
| bytes | shm | shm / MPI |
|---|---|---|
| 8 | 0.11 | 0.80 |
| 8,192 | 0.37 | 0.31 |

Over TCP:

| bytes | tcp / MPI |
|---|---|
| 8 | 0.93 |
| 8,192 | 0.79 |

## far
| bytes | shm / MPI |
|---|---|
| 8 | 0.55 |

All: 2.3x and 2.9x.
"""
TABLE = """<!-- figures of docs/speed.md, near, 2 ranks: shm / MPI | tcp / MPI -->
| bytes | shared memory | TCP |
| --- | --- | --- |
| 8 | 0.80 | 0.93 |
| 8 Ki | {} | 0.79 |

"""


class FiguresTest(TreeCase):
    def problems(self, readme, page=PAGE):
        self.write("README.md", readme)
        self.write("docs/speed.md", page)
        return check_figures.check(self.root)

    def test_figures_of_the_page_pass(self):
        self.assertEqual([], self.problems(TABLE.format("0.31")))

    def test_a_figure_that_the_page_does_not_have_is_named(self):
        problems = self.problems(TABLE.format("0.07"))
        self.assertEqual(1, len(problems), problems)
        self.assertIn("'| 8 Ki | 0.07 | 0.79 |' is '| 8 Ki | 0.31 | 0.79 |'", problems[0])

    def test_the_page_s_figures_can_be_written(self):
        self.problems("# Fast\n" + TABLE.format("0.07") + "end\n")
        written, problems = check_figures.read(self.root)
        self.assertEqual([], problems)
        self.assertEqual("# Fast\n" + TABLE.format("0.31") + "end\n", written)

    def test_only_tables_of_the_section_count(self):
        problems = self.problems(TABLE.format("0.31").replace("near, 2 ranks", "far"))
        self.assertEqual(["README.md, docs/speed.md: 'far' has no column 'tcp / MPI'"], problems)

    def test_a_size_that_the_page_does_not_have(self):
        problems = self.problems(TABLE.format("0.31") .replace("8 Ki", "16 Ki"))
        self.assertEqual(["README.md, docs/speed.md: 'near, 2 ranks' has no 16384 bytes in 'shm / MPI'"], problems)

    def test_decimals_of_a_paragraph_are_in_words_of_the_page(self):
        marker = "<!-- figures of docs/speed.md: All: 2.3x and 2.9x -->\n"
        self.assertEqual([], self.problems(marker + "2.3 times, 2.9 registered, from 8 B on\n\nand 7.5 elsewhere\n"))
        self.assertEqual(["README.md, docs/speed.md: 3.9 is in no words of the marker"],
                         self.problems(marker + "2.3 times, 3.9 registered\n"))
        self.assertEqual(["README.md, docs/speed.md: the page does not say 'All: 2.3x and 2.9x'"],
                         self.problems(marker + "2.3 times\n", PAGE.replace("2.9x", "2.8x")))

    def test_a_readme_without_markers_or_a_page_that_is_gone(self):
        self.assertEqual(["README.md: no figures are marked"], self.problems("| 8 | 0.80 |\n"))
        self.assertEqual(["README.md: docs/gone.md does not exist"],
                         self.problems(TABLE.format("0.31").replace("speed.md", "gone.md")))


if __name__ == "__main__":
    unittest.main()
