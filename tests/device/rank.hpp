// SPDX-License-Identifier: Apache-2.0
// This process as a rank that run_processes() started.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/device/job.hpp"

namespace plexus::testing_device {

inline ncclUniqueId id_of(const std::string& text) {
  ncclUniqueId id{};
  for (size_t i = 0; i < sizeof(id.internal); ++i) {
    id.internal[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return id;
}

inline int number(const char* name) { return std::atoi(setting(name).c_str()); }

/// This process's rank, with a stream and memory on its device.
class Rank {
 public:
  Rank() : rank(number("PLEXUS_TEST_RANK")), nranks(number("PLEXUS_TEST_RANKS")) {
    device = machine().device(number("PLEXUS_TEST_DEVICE"));
    machine().set_current(device);
    const ncclResult_t made =
        ncclCommInitRank(&comm, nranks, id_of(setting("PLEXUS_TEST_ID")), rank);
    if (made != ncclSuccess) {
      std::fprintf(stderr, "%s\n", ncclGetLastError(nullptr));
      std::exit(1);
    }
    if (setting("PLEXUS_DEVICE") == "cuda") {
      stream = machine().make_stream(device);
      memory = static_cast<int64_t*>(machine().allocate(device, kCountMax * sizeof(int64_t)));
    } else {
      memory = on_host.data();
    }
  }

  void fill(size_t count, int64_t value) const {
    const std::vector<int64_t> values(count, value);
    machine().copy(device, memory, values.data(), count * sizeof(int64_t));
  }
  [[nodiscard]] bool holds(size_t count, int64_t value) const {
    std::vector<int64_t> found(count);
    machine().copy(device, found.data(), memory, count * sizeof(int64_t));
    return found == std::vector<int64_t>(count, value);
  }
  [[nodiscard]] int64_t sum() const { return int64_t{nranks} * (nranks + 1) / 2; }
  [[nodiscard]] ncclResult_t all_reduce(size_t count) const {
    return ncclAllReduce(memory, memory, count, ncclInt64, ncclSum, comm, stream);
  }
  void synchronize() const {
    if (stream != nullptr) {
      machine().synchronize(stream);
    }
  }

  static constexpr size_t kCountMax = 300'000;
  int rank;
  int nranks;
  int device = 0;
  ncclComm_t comm = nullptr;
  DeviceStream stream = nullptr;
  std::vector<int64_t> on_host = std::vector<int64_t>(kCountMax);
  int64_t* memory = nullptr;  // on_host.data(), or of the device
};

}  // namespace plexus::testing_device
