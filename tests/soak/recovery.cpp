// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/recovery.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>

#include <fmt/format.h>

namespace plexus::soak {
namespace {

using Wrong = std::optional<std::string>;
using Comms = std::vector<ncclComm_t>;

constexpr size_t kCount = 1000;

Wrong check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) {
    return std::nullopt;
  }
  return fmt::format("going on after a death: {} returned {}: {}", what, static_cast<int>(result),
                     ncclGetLastError(nullptr));
}

/// A call for each of the thread's ranks, in a group.
Wrong for_each(size_t nranks, const char* what, const std::function<ncclResult_t(size_t)>& call) {
  (void)ncclGroupStart();
  ncclResult_t first = ncclSuccess;
  for (size_t i = 0; i < nranks; ++i) {
    const ncclResult_t result = call(i);
    first = first == ncclSuccess ? result : first;
  }
  const ncclResult_t ended = ncclGroupEnd();
  return check(first == ncclSuccess ? ended : first, what);
}

/// All ranks add their number and one.
Wrong check_sum(const Comms& comms) {
  std::vector<std::vector<int>> data;
  int nranks = 0;
  for (const ncclComm_t comm : comms) {
    int rank = 0;
    if (ncclCommUserRank(comm, &rank) != ncclSuccess ||
        ncclCommCount(comm, &nranks) != ncclSuccess) {
      return check(ncclInternalError, "ncclCommUserRank or ncclCommCount");
    }
    data.emplace_back(kCount, rank + 1);
  }
  auto wrong = for_each(comms.size(), "ncclAllReduce", [&](size_t i) {
    return ncclAllReduce(data[i].data(), data[i].data(), kCount, ncclInt32, ncclSum, comms[i],
                         nullptr);
  });
  for (const auto& sums : data) {
    if (!wrong.has_value() && std::any_of(sums.begin(), sums.end(), [&](int sum) {
          return sum != nranks * (nranks + 1) / 2;
        })) {
      wrong = "WRONG DATA: a sum after a death, in 0:all_reduce ";
    }
  }
  return wrong;
}

Wrong destroy(const Comms& comms) {
  return for_each(comms.size(), "ncclCommDestroy",
                  [&](size_t i) { return ncclCommDestroy(comms[i]); });
}

std::vector<int> ranks_of(const Job& job, int process) {
  std::vector<int> ranks;
  for (const Thread& thread : job.threads) {
    if (thread.process == process) {
      ranks.insert(ranks.end(), thread.ranks.begin(), thread.ranks.end());
    }
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

/// The program itself makes the shrink that survivors make.
bool shrinks_alike(const Job& job, const std::vector<int>& dead) {
  return std::any_of(job.makings.begin(), job.makings.end(), [&](const Making& making) {
    std::vector<int> excluded = making.excluded;
    std::sort(excluded.begin(), excluded.end());
    return making.kind == MakingKind::kShrink && making.parent == 0 && excluded == dead;
  });
}

std::string grow_id_path(const std::string& folder) { return folder + "/id.grow"; }

Wrong publish_grow_id(const std::string& folder, ncclComm_t comm) {
  ncclUniqueId id{};
  if (auto wrong = check(ncclCommGetUniqueId(comm, &id), "ncclCommGetUniqueId")) {
    return wrong;
  }
  const std::string path = grow_id_path(folder);
  std::FILE* const file = std::fopen((path + ".part").c_str(), "wbe");
  const bool is_written = file != nullptr && std::fwrite(&id, sizeof(id), 1, file) == 1;
  if (file == nullptr || std::fclose(file) != 0 || !is_written ||
      std::rename((path + ".part").c_str(), path.c_str()) != 0) {
    return "the id for ncclCommGrow cannot be written";
  }
  return std::nullopt;
}

Wrong grow(const Survivor& survivor, const Comms& rests) {
  for (const ncclComm_t rest : rests) {
    int rank = -1;
    if (ncclCommUserRank(rest, &rank) == ncclSuccess && rank == 0) {
      if (auto wrong = publish_grow_id(survivor.folder, rest)) {
        return wrong;
      }
    }
  }
  Comms grown(rests.size());
  if (auto wrong = for_each(rests.size(), "ncclCommGrow", [&](size_t i) {
        return ncclCommGrow(rests[i], survivor.job.nranks, nullptr, -1, &grown[i], nullptr);
      })) {
    return wrong;
  }
  auto wrong = check_sum(grown);
  return wrong.has_value() ? wrong : destroy(grown);
}

}  // namespace

Wrong go_on_without_guilty(const Survivor& survivor,
                           const Comms& worlds,
                           std::atomic<int64_t>& went_on_us) {
  const Fault& fault = *survivor.job.fault;
  std::vector<int> dead = ranks_of(survivor.job, fault.process);
  Comms rests(worlds.size());
  for (const ncclComm_t world : worlds) {
    if (fault.recovery == Recovery::kRevoke) {
      if (auto wrong = check(ncclCommRevoke(world, NCCL_REVOKE_DEFAULT), "ncclCommRevoke")) {
        return wrong;
      }
    }
  }
  const int flags =
      fault.recovery == Recovery::kShrinkAbort ? NCCL_SHRINK_ABORT : NCCL_SHRINK_DEFAULT;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  const auto shrink = [&] {
    return for_each(worlds.size(), "ncclCommShrink", [&](size_t i) {
      return ncclCommShrink(worlds[i], dead.data(), static_cast<int>(dead.size()), &rests[i],
                            &config, flags);
    });
  };
  auto wrong = shrink();
  if (wrong.has_value() && shrinks_alike(survivor.job, dead)) {
    wrong = shrink();  // others had made that of the program, and given it up
  }
  if (!wrong.has_value()) {
    wrong = check_sum(rests);
  }
  if (wrong.has_value()) {
    return wrong;
  }
  went_on_us.store(now_us());
  if (fault.grows) {
    wrong = grow(survivor, rests);
  }
  return wrong.has_value() ? wrong : destroy(rests);
}

Wrong join_as_fresh(const Job& job, const std::string& folder, const ProcessProgress& page) {
  ncclUniqueId id{};
  for (std::FILE* file = nullptr; file == nullptr;) {
    if (page.order.load() == Order::kLeave) {
      return std::nullopt;
    }
    file = std::fopen(grow_id_path(folder).c_str(), "rbe");
    if (file == nullptr) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    const size_t nread = std::fread(&id, sizeof(id), 1, file);
    std::fclose(file);
    if (nread != 1) {
      return "the id for ncclCommGrow cannot be read";
    }
  }
  const auto nfresh = ranks_of(job, job.fault->process).size();
  Comms grown(nfresh);
  if (auto wrong = for_each(nfresh, "ncclCommGrow", [&](size_t i) {
        const int rank = job.nranks - static_cast<int>(nfresh - i);
        return ncclCommGrow(nullptr, job.nranks, &id, rank, &grown[i], nullptr);
      })) {
    return wrong;
  }
  auto wrong = check_sum(grown);
  return wrong.has_value() ? wrong : destroy(grown);
}

}  // namespace plexus::soak
