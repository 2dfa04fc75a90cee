#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Env plugins, v1 and v2: settings come from the fixture (tests/abi/nccl_profiler/env.c), which answers with the variable
FIXTURE_NAME for the setting NAME."""
import os

import job

FOLDER = os.environ.get("PLEXUS_TEST_EXAMPLE_DIR", "build/dev/test-bin")
ONE_SIZE = ["-b", "64K", "-e", "64K", "-n", "1", "-w", "0", *job.limit(50), "--ranks", 2, "--mode", "procs"]


class EnvPlugin(job.Test):
    def run_with(self, plugin, **environment):
        return self.start(job.perf("all_reduce", *ONE_SIZE), NCCL_ENV_PLUGIN=plugin, PLEXUS_PLUGIN_PATH=FOLDER,
                          NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,ENV", **environment).end(60)

    def test_answers_in_place_of_the_environment(self):
        for version, released in (("v1", "init 2."), ("v2", "init 2.")):
            with self.subTest(version):
                ended = self.run_with(f"fixture-{version}", FIXTURE_NCCL_SHM_DISABLE="1", FIXTURE_NCCL_P2P_DISABLE="1",
                                      FIXTURE_NCCL_NET="socket", NCCL_NET="absent")
                self.assertEqual(ended.returncode, 0, ended.stderr)
                reported = ended.stdout + ended.stderr
                # with the environment alone no rank needs one
                self.assertIn("using network Socket", reported)
                self.assertIn("settings come from env plugin Fixture", reported)
                self.assertEqual(reported.count(f"env fixture: {released}"), reported.count("env fixture: finalize"))
                self.assertGreaterEqual(reported.count("env fixture: finalize"), 2)  # each process, once

    def test_reaches_plugins_too(self):
        ended = self.run_with("fixture-v2", FIXTURE_NCCL_SHM_DISABLE="1", FIXTURE_NCCL_P2P_DISABLE="1",
                              FIXTURE_NCCL_SOCKET_IFNAME="=absent0")
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("absent0", ended.stderr)

    def test_a_bad_value_says_where_it_is_from(self):
        ended = self.run_with("fixture-v1", FIXTURE_NCCL_SHM_DISABLE="maybe")
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("NCCL_SHM_DISABLE=maybe (from the env plugin) is invalid", ended.stderr)

    def test_none_is_the_environment(self):
        ended = self.run_with("none", FIXTURE_NCCL_SHM_DISABLE="maybe")
        self.assertEqual(ended.returncode, 0, ended.stderr)

    def test_failures_are_one_sentence(self):
        for plugin, fault, says in (("absent", {}, "env plugin 'absent' was not found: looked for libnccl-env-absent.so"),
                                    ("fixture-v2", {"ENV_FIXTURE_FAULT": "1"}, "did not start (code 3)"),
                                    (f"{FOLDER}/libnccl-net-tcp-v8.so", {}, "has neither ncclEnvPlugin_v1 nor v2"),
                                    ("STATIC_PLUGIN", {}, "STATIC_PLUGIN has neither ncclEnvPlugin_v1 nor v2")):
            with self.subTest(plugin):
                ended = self.run_with(plugin, **fault)
                self.assertNotEqual(ended.returncode, 0)
                self.assertIn(says, ended.stderr)


if __name__ == "__main__":
    job.main()
