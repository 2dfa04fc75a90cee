# SPDX-License-Identifier: Apache-2.0
"""Small mutations of C++ text: each a change of one operator, bound, condition or statement.

    for mutation in mutate.mutations(text): mutate.apply(text, mutation)
"""
import dataclasses
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tidy"))
import tree  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Mutation:
    line: int   # from 1
    begin: int  # in the text
    end: int
    new: str
    kind: str


OPERATORS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
             "+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "+=": "-=", "-=": "+="}
OPERATOR = re.compile(r"(?<= )(<=|>=|==|!=|&&|\|\||\+=|-=|[<>+*/%-])(?= |\n)")
NEGATION = re.compile(r"(?<![\w)\]])!(?=[\w(])")
CONDITION = re.compile(r"(?<=\bif \()(?!.*;)(.+)(?=\) \{$)", re.MULTILINE)
BOUND = {"std::max": "std::min", "std::min": "std::max", "any_of": "all_of", "all_of": "any_of", "true": "false",
         "false": "true", ".front()": ".back()", ".back()": ".front()"}
WORD = re.compile(r"\bstd::(?:max|min)\b|\b(?:any_of|all_of|true|false)\b|\.(?:front|back)\(\)")
NUMBER = re.compile(r"(?<![\w.'])\d+(?![\w.'])")
# A whole statement on one line: an assignment or a call, no declaration and no return.
STATEMENT = re.compile(r"^[ ]+((?:\+\+|--)?\*?[\w.:>\[\]()-]+?(?:(?: [-+*/|&^]?= [^;{}]+)|(?:\([^;{}]*\))|(?:\+\+|--))?;)$",
                       re.MULTILINE)
# Lines whose change says nothing about the logic: assertions, logs, room made in advance, includes, templates.
LEFT_ALONE = re.compile(r"PLEXUS_\w+\(|\breserve\(|#|\btemplate\b|\bstatic_assert\b|\boperator\b|\busing\b|\bnamespace\b")


def mutations(text):
    """All mutations of `text`, in order."""
    code = tree.blank(text)
    begins = [0] + [match.end() for match in re.finditer("\n", code)]
    skipped = _skipped(code)
    found = []

    def add(begin, end, new, kind):
        line = code.count("\n", 0, begin) + 1
        head = code[begins[line - 1]:code.find("\n", begin)]
        if line not in skipped and not LEFT_ALONE.search(head):
            found.append(Mutation(line, begin, end, new, kind))

    for match in OPERATOR.finditer(code):
        add(*match.span(), OPERATORS[match[1]], "operator")
    for match in NEGATION.finditer(code):
        add(*match.span(), "", "negation")
    for match in CONDITION.finditer(code):
        add(*match.span(), f"!({text[match.start():match.end()]})", "negation")
    for match in WORD.finditer(code):
        add(*match.span(), BOUND[match[0]], "bound")
    for match in NUMBER.finditer(code):
        add(*match.span(), str(int(match[0]) + 1), "bound")
    for match in STATEMENT.finditer(code):
        begins_there = code[:match.start(1)].rstrip()[-1:] in ("", ";", "{", "}", ":")
        if begins_there and not re.match(r"(return|break|continue|case|default|else|public|private)\b", match[1]):
            add(*match.span(1), ";", "statement")
    return sorted(set(found), key=lambda each: (each.begin, each.end, each.new))


def _skipped(code):
    """Lines of assertions and logs that go over several lines."""
    lines = set()
    for match in re.finditer(r"\bPLEXUS_(?:DCHECK|ASSERT|INFO|WARN|TRACE|NOTIFY)\(", code):
        depth, at = 1, match.end()
        while at < len(code) and depth > 0:
            depth += {"(": 1, ")": -1}.get(code[at], 0)
            at += 1
        first = code.count("\n", 0, match.start()) + 1
        lines.update(range(first, first + code.count("\n", match.start(), at) + 1))
    return lines


def apply(text, mutation):
    return text[:mutation.begin] + mutation.new + text[mutation.end:]


def describe(text, mutation):
    line = text.splitlines()[mutation.line - 1].strip()
    old = " ".join(text[mutation.begin:mutation.end].split())
    return f"'{old}' -> '{mutation.new if mutation.new else '(nothing)'}' in: {line}"
