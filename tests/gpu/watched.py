# SPDX-License-Identifier: Apache-2.0
"""Programs that are watched: none runs longer than it may, and what is known when one is ended is kept.

A GPU test that hangs, dies or leaves the device in error must not take the others with it: run_gtest() goes on with the
remaining tests in a new process.
"""
import dataclasses
import os
import re
import select
import signal
import subprocess
import time

SKIPPED = 77
REAP_S = 3  # a killed process whose driver does not let go of it
EVENT = re.compile(r"^\[\s*(RUN|OK|FAILED|SKIPPED)\s*\] (\S+?)(?:,| \(|$)")


@dataclasses.dataclass
class Outcome:
    word: str  # ok, FAILED, no GPU, not run
    note: str = ""
    text: str = ""
    code: int = 0
    tables: list = dataclasses.field(default_factory=list)  # lines of markdown
    failures: list = dataclasses.field(default_factory=list)


def end(process):
    """All of its process group: ranks are processes of it. One that a driver holds is left behind."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        process.wait(timeout=REAP_S)
    except subprocess.TimeoutExpired:
        pass


def lines_of(words, environment, deadline_of):
    """Lines as they come. Ends, with None, when deadline_of() is past; else with the exit code."""
    # pylint: disable-next=consider-using-with
    process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               start_new_session=True)
    rest = b""
    try:
        while True:
            left = deadline_of() - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                yield None
                return
            piece = os.read(process.stdout.fileno(), 65_536)
            if not piece:
                break
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield line.decode(errors="replace")
        if rest:
            yield rest.decode(errors="replace")
        process.wait(timeout=max(1.0, deadline_of() - time.monotonic()))
        yield process.returncode
    except subprocess.TimeoutExpired:
        yield None
    finally:
        process.stdout.close()
        end(process)


def tables_in(lines):
    """Tables with the line before each of them, and sentences of tools."""
    kept = []
    for index, line in enumerate(lines):
        if line.startswith("|"):
            if not lines[index - 1].startswith("|"):
                title = next((before for before in reversed(lines[max(0, index - 2):index]) if before.strip()), "")
                kept += ["", title, ""] if not title.startswith("[") else [""]
            kept.append(line)
    return kept


def run_watched(words, environment, limit):
    """A program whose exit code is its result."""
    end_at = time.monotonic() + limit
    lines, code = [], None
    try:
        for line in lines_of(words, environment, lambda: end_at):
            if isinstance(line, str):
                lines.append(line)
            else:
                code = line
    except OSError as reason:
        return Outcome("FAILED", str(reason), code=127)
    text = "\n".join(lines)
    last = next((line for line in reversed(lines) if line.strip()), "")
    if code is None:
        return Outcome("FAILED", f"not done after {limit:.0f} s; last: {last}", text, -1, tables_in(lines))
    if code == SKIPPED:
        reason = next((line for line in lines if line.startswith("SKIPPED")), last)
        return Outcome("no GPU" if "GPU" in reason else "not run", reason.removeprefix("SKIPPED: "), text, code)
    failures = [line for line in lines if "FAILED" in line or "WRONG" in line]
    if code != 0:
        return Outcome("FAILED", f"exit code {code}; {last}", text, code, tables_in(lines), failures[:20])
    return Outcome("ok", "", text, code, tables_in(lines) or [last] * bool(last))


class Tests:
    """What became of the tests of one program."""

    def __init__(self, names):
        self.pending = list(names)
        self.passed, self.skipped = 0, 0
        self.failures = []
        self.current, self.reason = None, []

    def note(self, line):
        event = EVENT.match(line)
        if event is None:
            if self.current is not None and line.strip():
                self.reason.append(line.strip())
            return
        word, name = event.groups()
        if word == "RUN":
            self.current, self.reason = name, []
        elif name == self.current:
            self.settle(word)

    def settle(self, word):
        if word == "OK":
            self.passed += 1
        elif word == "SKIPPED":
            self.skipped += 1
        else:
            self.failures.append(f"{self.current} {word.lower()}: {' / '.join(self.reason[:6])[:600]}")
        if self.current in self.pending:
            self.pending.remove(self.current)
        self.current = None


def names_of(program, tests, environment, limit):
    """(names, exit code or None, output) of --gtest_list_tests."""
    end_at = time.monotonic() + limit
    lines, code = [], None
    for line in lines_of([str(program), "--gtest_list_tests", f"--gtest_filter={tests}"], environment, lambda: end_at):
        if isinstance(line, str):
            lines.append(line)
        else:
            code = line
    names, suite = [], ""
    for line in lines:
        word = line.split("#")[0].rstrip()
        if word.startswith("  "):
            names.append(suite + word.strip())
        elif word.endswith("."):
            suite = word
    return names, code, "\n".join(lines)


def run_gtest(program, tests, environment, limit, each, under=()):
    """All tests of the filter `tests`, each in at most `each` seconds; `under`: a tool and its options. A test that
    fails, hangs or dies ends the process: those after it run in a new one."""
    end_at = time.monotonic() + limit
    try:
        names, code, text = names_of(program, tests, environment, min(limit, each))
    except OSError as reason:
        return Outcome("FAILED", str(reason), code=127)
    if code == SKIPPED:
        return Outcome("no GPU", text.strip().removeprefix("SKIPPED: "), text, code)
    if code is None:
        return Outcome("FAILED", "it does not end listing its tests", text, -1)
    if not names:
        return Outcome("FAILED", "it has no such tests", text, code)
    state, log = Tests(names), []
    while state.pending and time.monotonic() < end_at:
        left_before, failed_before = len(state.pending), len(state.failures)
        begin = [time.monotonic()]
        words = [*under, str(program), f"--gtest_filter={':'.join(state.pending)}"]
        output = lines_of(words, environment, lambda: min(end_at, begin[0] + each))
        for line in output:
            if isinstance(line, str):
                begin[0] = time.monotonic() if EVENT.match(line) else begin[0]
                log.append(line)
                state.note(line)
                if len(state.failures) != failed_before:
                    break
            elif state.current is not None:
                out_of_time = time.monotonic() >= end_at
                state.settle("NOT DONE when the time was over" if out_of_time else
                             "HUNG" if line is None else f"DIED (exit code {line})")
            elif line not in (0, None):
                state.failures.append(f"the program ended with exit code {line} after {log[-1] if log else 'nothing'}")
        output.close()
        if len(state.pending) == left_before:
            state.failures.append(f"no test ran: {' / '.join(log[-3:])[:600]}")
            break
    note = f"{state.passed} passed, {len(state.failures)} failed, {state.skipped} skipped"
    if state.pending:
        note += f", {len(state.pending)} not run"
    right = not state.failures and not state.pending
    return Outcome("ok" if right else "FAILED", note, "\n".join(log), 0 if right else 1, tables_in(log), state.failures)
