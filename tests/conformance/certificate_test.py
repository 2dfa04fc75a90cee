#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plexus plugin certify and verify-certificate: what is signed, what a user of it sees, and what is refused.

Usage: certificate_test.py CERTIFICATES, the folder of those in the documents
"""
import html.parser
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

BIN = os.environ["PLEXUS_TEST_BIN_DIR"]
LIBRARIES = os.environ["PLEXUS_TEST_LIB_DIR"]
EXAMPLES = os.environ["PLEXUS_TEST_EXAMPLE_DIR"]
FACTOR = max(1, int(float(os.environ.get("PLEXUS_TEST_TIME_FACTOR", "1"))))
SOCKET = os.path.join(LIBRARIES, "libplexus-net-socket.so")
TUNER = os.path.join(EXAMPLES, "libplexus-tuner-mutant-v3.so")
MUTANT = os.path.join(EXAMPLES, "libplexus-net-mutant.so")
SEEDED = os.path.join(EXAMPLES, "libplexus-net-seeded.so")


def plexus(*arguments, **environment):
    return subprocess.run([os.path.join(BIN, "plexus"), "plugin", *map(str, arguments)], env={**os.environ, **environment},
                          capture_output=True, text=True, timeout=100 * FACTOR, check=False)


class Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen, self.attributes = set(), set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.attributes.update(name for name, _ in attrs)


class Certificates(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="plexus-certificates-"))
        cls.key, cls.other_key = cls.folder / "key", cls.folder / "other"
        cls.public = plexus("certify", "--make-key", cls.key).stdout.strip()
        cls.other_public = plexus("certify", "--make-key", cls.other_key).stdout.strip()
        cls.file, cls.page, cls.badge = (cls.folder / name for name in ("tuner.json", "tuner.html", "tuner.svg"))
        cls.made = plexus("certify", TUNER, "--key", cls.key, "--out", cls.file, "--html", cls.page, "--badge", cls.badge,
                          "--patience", FACTOR, NCCL_X="<script>alert(1)</script>", PLEXUS_SECRET_FILE="/nonexistent")

    def certify(self, library, *arguments, file="any.json", **environment):
        """(exit code, certificate)"""
        ended = plexus("certify", library, "--out", self.folder / file, "--patience", FACTOR, *arguments, **environment)
        self.assertEqual(ended.stderr, "")
        return ended.returncode, json.loads((self.folder / file).read_text())["certificate"]

    def refuse(self, code, says, *arguments):
        ended = plexus(*arguments)
        self.assertEqual(ended.returncode, code, ended.stdout + ended.stderr)
        self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr)
        self.assertIn(says, ended.stderr)

    def verify_bytes(self, data):
        file = self.folder / "changed.json"
        file.write_bytes(data)
        return plexus("verify-certificate", file)

    # ---- keys ----

    def test_a_key_is_its_owners_alone(self):
        self.assertRegex(self.public, "^[0-9a-f]{64}$")
        self.assertEqual(stat.S_IMODE(self.key.stat().st_mode), 0o600)
        self.assertNotIn(self.public, self.key.read_text())
        self.refuse(2, "cannot make a key", "certify", "--make-key", self.key)
        open_key = self.folder / "open"
        open_key.write_text(self.key.read_text())
        open_key.chmod(0o644)
        self.refuse(2, "chmod 600", "certify", TUNER, "--key", open_key, "--out", "-")
        no_key = self.folder / "no-key"
        no_key.write_text("secret")
        no_key.chmod(0o600)
        self.refuse(2, "is not a key", "certify", TUNER, "--key", no_key, "--out", "-")

    # ---- what is made ----

    def test_a_whole_kit_passes_and_everybody_can_verify_that(self):
        self.assertEqual((self.made.returncode, self.made.stderr), (0, ""), self.made.stdout)
        for arguments, says in (((), "its owner must tell you"), (("--key", self.public, "--library", TUNER), "is the one")):
            ended = plexus("verify-certificate", self.file, *arguments)
            self.assertEqual((ended.returncode, ended.stderr), (0, ""), ended.stdout)
            self.assertIn(says, ended.stdout)
            self.assertIn("ncclTunerPlugin_v3", ended.stdout)
        public_file = self.folder / "public"
        public_file.write_text(self.public + "\n")
        self.assertEqual(plexus("verify-certificate", self.file, "--key", public_file).returncode, 0)

    def test_the_certificate_has_what_a_reader_needs(self):
        text = self.file.read_text()
        document = json.loads(text)
        self.assertEqual(text, json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n")
        certificate = document["certificate"]
        self.assertEqual(certificate["verdict"], "passed")
        self.assertEqual(certificate["environment"]["PLEXUS_SECRET_FILE"], "(set)")
        self.assertEqual(certificate["environment"]["NCCL_X"], "<script>alert(1)</script>")
        self.assertRegex(certificate["times"]["load_begin"], r"^\d+\.\d\d \d+\.\d\d \d+\.\d\d$")
        digest = subprocess.run(["b2sum", "-l", "256", TUNER], capture_output=True, text=True, check=True).stdout.split()[0]
        self.assertEqual(certificate["library"], {"name": os.path.basename(TUNER), "blake2b_256": digest})
        section, = certificate["sections"]
        self.assertEqual(section["counts"]["passed"], len(section["passed"]))
        self.assertGreater(len(section["passed"]), 30)
        self.assertTrue(all(each["detail"] for each in section["others"]))

    def test_the_page_has_no_scripts_and_needs_nothing_else(self):
        page = self.page.read_text()
        tags = Tags()
        tags.feed(page)
        self.assertFalse({"script", "img", "link", "iframe"} & tags.seen, tags.seen)
        self.assertFalse({name for name in tags.attributes if name in ("src", "href") or name.startswith("on")})
        self.assertIn("&lt;script&gt;", page)
        self.assertIn(self.public, page)
        badge = xml.etree.ElementTree.parse(self.badge).getroot()
        self.assertIn("passed: tuner v3", "".join(badge.itertext()))

    def test_a_failure_has_the_smallest_program(self):
        code, certificate = self.certify(MUTANT, "--only", "init.ok,message.odd", "--html", self.folder / "broken.html",
                                         PLEXUS_MUTANT="isend_corrupts", PLEXUS_MUTANT_OF=SOCKET)
        self.assertEqual((code, certificate["verdict"]), (1, "failed"))
        check, = certificate["sections"][0]["others"]
        self.assertEqual((check["id"], check["verdict"]), ("message.odd", "fail"))
        self.assertIn("int main(", check["program"])
        self.assertIn("./a.out ./libplexus-net-mutant.so", check["program"])
        self.assertIn("a C program that fails in the same way", (self.folder / "broken.html").read_text())

    def test_a_part_of_the_kit_is_no_whole_one(self):
        code, certificate = self.certify(SOCKET, "--only", "file.load", "--badge", self.folder / "part.svg")
        self.assertEqual((code, certificate["verdict"]), (0, "incomplete"))
        self.assertIn("part of the kit: net native, net v12", (self.folder / "part.svg").read_text())
        tables = {each["entry"]: each for each in certificate["sections"]}
        self.assertIn("--abi chooses another", tables["ncclNetPlugin_v8"]["reason"])
        _, certificate = self.certify(SOCKET, "--only", "file.load", "--abi", "v8")
        self.assertEqual([each["entry"] for each in certificate["sections"] if each["verdict"] == "passed"], ["ncclNetPlugin_v8"])

    def test_all_kinds_of_a_library_are_checked_and_those_without_checks_are_named(self):
        code, certificate = self.certify(os.path.join(EXAMPLES, "libnccl-net-mixed.so"), "--only", "file.load")
        self.assertEqual(code, 0)
        self.assertEqual({each["kind"] for each in certificate["sections"] if each["verdict"] == "passed"}, {"net", "tuner"})
        for library, kind in (("libnccl-env-fixture-v2.so", "env"), ("libnccl-log-fixture.so", "log"),
                              ("libnccl-net-odd-gin.so", "gin")):
            code, certificate = self.certify(os.path.join(EXAMPLES, library))
            self.assertEqual((code, certificate["verdict"]), (3, "not tested"), library)
            self.assertIn(f"no checks of {kind} plugins", str(certificate["sections"]))

    def test_a_network_without_a_device_here_is_not_tested(self):
        code, certificate = self.certify(os.path.join(EXAMPLES, "libnccl-net-letter.so"), LETTER_NO_DEVICE="1")
        self.assertEqual((code, certificate["verdict"]), (3, "not tested"))
        self.assertIn("it finds no device here", certificate["sections"][0]["reason"])

    def test_a_library_that_is_no_plugin_is_refused(self):
        self.refuse(2, "exports no table", "certify", os.path.join(EXAMPLES, "libnccl-net-odd-no-plugin.so"), "--out", "-")
        self.refuse(2, "--out", "certify", TUNER)
        self.refuse(2, "nothing.of.it", "certify", TUNER, "--only", "nothing.of.it", "--out", "-")

    # ---- the long run ----

    def test_the_long_run_carries_messages_over_each_abi(self):
        code, certificate = self.certify(SOCKET, "--only", "init.ok", "--hours", "0.0003", "--seed", "7")
        self.assertEqual(code, 0, certificate)
        runs = [each["endurance"] for each in certificate["sections"] if each["endurance"]]
        self.assertEqual([(run["seed"], run["failure"]) for run in runs], [(7, "")] * 2)
        for run in runs:
            self.assertGreaterEqual(run["epochs"], 6)
            self.assertEqual(run["messages"], run["epochs"] * 6 * 3 * 2 * 16)  # rounds, threads, connections, messages

    def test_the_long_run_finds_what_grows_and_what_is_wrong(self):
        for fault, says in (("send_leaks", "bytes of heap leaked"), ("accept_leaks", "open after the connections"),
                            ("close_thread", "threads after"), ("seldom", " of a message of ")):
            with self.subTest(fault):
                code, certificate = self.certify(SEEDED, "--only", "init.ok", "--hours", "0.0003", PLEXUS_MUTANT=fault,
                                                 PLEXUS_MUTANT_OF=SOCKET)
                self.assertEqual((code, certificate["verdict"]), (1, "failed"))
                self.assertIn(says, certificate["sections"][0]["endurance"]["failure"])

    # ---- what is refused ----

    def test_no_bit_can_be_changed(self):
        data = self.file.read_bytes()
        for at in range(0, len(data), max(1, len(data) // 60)):
            changed = bytearray(data)
            changed[at] ^= 1 << (at % 7)
            ended = self.verify_bytes(bytes(changed))
            self.assertIn(ended.returncode, (1, 2), f"byte {at}")
            self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr)

    def test_another_key_another_library_and_no_signature_are_told(self):
        self.refuse(1, "another key", "verify-certificate", self.file, "--key", self.other_public)
        self.refuse(1, "another library", "verify-certificate", self.file, "--library", SOCKET)
        self.refuse(2, "64 hexadecimal digits", "verify-certificate", self.file, "--key", self.key)
        document = json.loads(self.file.read_text())
        compact = {"sort_keys": True, "separators": (",", ":")}
        unsigned = (json.dumps({**document, "signature": None}, **compact) + "\n").encode()
        ended = self.verify_bytes(unsigned)
        self.assertEqual((ended.returncode, ended.stderr), (1, "plexus: nobody has signed this certificate\n"))
        document["signature"]["public_key"] = self.other_public
        ended = self.verify_bytes((json.dumps(document, **compact) + "\n").encode())
        self.assertEqual(ended.returncode, 1)
        self.assertIn("changed afterwards", ended.stderr)

    def test_files_that_are_no_certificates_get_one_sentence(self):
        text = self.file.read_text()
        for data in (b"", b"\n", b"{}\n", b"null\n", text.encode()[:-1], text.encode()[:1000], text.encode() + b"\n",
                     b"[" * 100000, b'{"certificate":' * 5000, bytes(range(256)) * 50, b"\xff" * 100, b'{"certificate":1e999}\n',
                     b'{"certificate":{},"signature":null}\n', b'{"certificate":null,"signature":null}\n',
                     text.replace('"format"', '"verdict":"passed","format"', 1).encode(),
                     b'{"certificate":{"format":"plexus plugin certificate 1"},"signature":{}}\n',
                     b'{"certificate":{"format":"plexus plugin certificate 2"},"signature":null}\n', b" " * (17 << 20)):
            ended = self.verify_bytes(data)
            self.assertEqual(ended.returncode, 2, data[:60])
            self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr[:400])
            self.assertLess(len(ended.stderr), 300)
        self.refuse(2, "nonexistent", "verify-certificate", "/nonexistent")

    # ---- those of the documents ----

    def test_those_in_the_documents_are_as_they_were_signed(self):
        folder = pathlib.Path(CERTIFICATES)
        files = sorted(folder.glob("*.json"))
        self.assertEqual(len(files), 7)
        for file in files:
            ended = plexus("verify-certificate", file, "--key", folder / "key.pub")
            self.assertEqual((ended.returncode, ended.stderr), (0, ""), file)
            self.assertNotIn("failed", json.loads(file.read_text())["certificate"]["verdict"])


if __name__ == "__main__":
    CERTIFICATES = sys.argv.pop(1)
    unittest.main()
