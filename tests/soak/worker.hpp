// SPDX-License-Identifier: Apache-2.0
// One process of a job: a thread for each of its entries in Job::threads.
#pragma once

#include <string>

#include "tests/soak/program.hpp"

namespace plexus::soak {

/// Files in a job's folder.
std::string progress_path(const std::string& folder, int process);
std::string finding_path(const std::string& folder, int process);
std::string output_path(const std::string& folder, int process);
std::string children_path(const std::string& folder);

/// Returns the process's exit code. After a finding it stays until the launcher ends it.
int run_process(const Job& job, int process, const std::string& folder);
/// The process that takes the guilty one's place when the ranks that are left grow. Its progress is
/// that of a process after the job's.
int run_fresh_process(const Job& job, const std::string& folder);

}  // namespace plexus::soak
