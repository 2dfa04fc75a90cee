// SPDX-License-Identifier: Apache-2.0
// One rank of a job that was started from outside. The ranks meet through the library only: its own
// rendezvous (NCCL_COMM_ID) or a file with the unique id, and later all-gather and all-reduce in
// place of shared memory.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include <fmt/core.h>

#include "tools/cli/flags.hpp"
#include "tools/cli/perf/benchmark.hpp"
#include "tools/cli/perf/rendezvous_file.hpp"
#include "tools/cli/perf/start.hpp"

namespace plexus::perf {
namespace {

/// Coordinates through the communicator under test, between its timed operations.
class CommControl final : public Control {
 public:
  CommControl(ncclComm_t comm, int nranks)
      : comm_(comm), all_(kFoldMax * static_cast<size_t>(nranks)) {}

  Result<void> barrier() override {
    float token = 0;
    return check_call("ncclAllReduce",
                      ncclAllReduce(&token, &token, 1, ncclFloat32, ncclSum, comm_, nullptr));
  }
  Result<void> fold(std::span<double> values, Fold how) override {
    PLEXUS_TRY(check_call("ncclAllGather", ncclAllGather(values.data(), all_.data(), values.size(),
                                                         ncclFloat64, comm_, nullptr)));
    const size_t nranks = all_.size() / kFoldMax;
    for (size_t i = 0; i < values.size(); ++i) {
      double folded = all_[i];
      for (size_t rank = 1; rank < nranks; ++rank) {
        const double theirs = all_[rank * values.size() + i];
        folded = how == Fold::kMax ? std::max(folded, theirs) : folded + theirs;
      }
      values[i] = folded;
    }
    return ok();
  }

 private:
  ncclComm_t comm_;
  std::vector<double> all_;  // [nranks][values]
};

const char* read_environment(const char* name) {
  return std::getenv(name);  // NOLINT(concurrency-mt-unsafe): no other thread exists yet
}

/// The job's file on this host; rank 0 removes it when all ranks have read it.
class RendezvousPlace {
 public:
  RendezvousPlace(const std::string& job, bool owner) : owner_(owner) {
    const char* runtime = read_environment("XDG_RUNTIME_DIR");
    std::error_code error;
    const bool usable = runtime != nullptr && std::filesystem::is_directory(runtime, error);
    path_ = rendezvous_path(usable ? runtime : "/tmp", job);
  }
  RendezvousPlace(const RendezvousPlace&) = delete;
  RendezvousPlace& operator=(const RendezvousPlace&) = delete;
  ~RendezvousPlace() {
    if (owner_) {
      std::error_code error;
      std::filesystem::remove(path_, error);
    }
  }

  Result<void> exchange(ncclUniqueId* id) const {
    UniqueIdBytes bytes;
    static_assert(sizeof(ncclUniqueId) == sizeof bytes);
    if (owner_) {
      PLEXUS_TRY(check_call("ncclGetUniqueId", ncclGetUniqueId(id)));
      std::memcpy(bytes.data(), id->internal, bytes.size());
      return publish_unique_id(path_, bytes);
    }
    const auto timeout = std::chrono::seconds(bootstrap_timeout_s(read_environment));
    PLEXUS_TRY(read, wait_unique_id(path_, std::filesystem::file_time_type::clock::now() - timeout,
                                    timeout));
    std::memcpy(id->internal, read.data(), read.size());
    return ok();
  }

 private:
  bool owner_;
  std::filesystem::path path_;
};

Result<ncclComm_t> connect(const PerfOptions& options, const JoinInput& input) {
  ncclUniqueId id{};
  std::optional<RendezvousPlace> barrier;
  if (!input.place.rendezvous.empty()) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread exists yet
    setenv("NCCL_COMM_ID", input.place.rendezvous.c_str(), 1);
    PLEXUS_TRY(check_call("ncclGetUniqueId", ncclGetUniqueId(&id)));
  } else {
    barrier.emplace(input.job, input.place.rank == 0);
    PLEXUS_TRY(barrier->exchange(&id));
  }
  ncclComm_t comm = nullptr;
  PLEXUS_TRY(check_call("ncclCommInitRank",
                        ncclCommInitRank(&comm, options.nranks, id, input.place.rank)));
  return comm;
}

}  // namespace

int bootstrap_timeout_s(const Environment& environment) {
  constexpr int kDefaultS = 300;
  constexpr IntRange kRange = {1, 86400};
  const char* text = environment("PLEXUS_BOOTSTRAP_TIMEOUT");
  const Result<int64_t> value = parse_int(text == nullptr ? "" : text, kRange);
  return value ? static_cast<int>(value.value()) : kDefaultS;
}

Result<uint64_t> join_job(const PerfOptions& options, const JoinInput& input, Reporter* reporter) {
  PLEXUS_TRY(comm, connect(options, input));
  PLEXUS_TRY(mine, Rank::create(comm, options, compute_largest_bytes(options)));
  std::vector<std::unique_ptr<Rank>> ranks;
  ranks.push_back(std::move(mine));
  RankSet set(std::move(ranks));
  CommControl control(comm, options.nranks);
  TakeRow print;
  if (reporter != nullptr) {
    print = [reporter](const Row& row) {
      reporter->add(row);
      return Result<void>(ok());
    };
  }
  return run_benchmark(options, set, control, print);
}

}  // namespace plexus::perf
