// SPDX-License-Identifier: Apache-2.0
#include "core/comm/split.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/hash.hpp"
#include "core/base/memory.hpp"
#include "core/comm/lifecycle.hpp"
#include "core/comm/process.hpp"
#include "core/comm/start_communicator.hpp"
#include "core/comm/visit.hpp"

namespace plexus {
namespace {

constexpr int kNoColor = -1;  // NCCL_SPLIT_NOCOLOR

struct Wish {
  int color;
  int key;
};

/// What all members of a child know of it.
struct ChildName {
  uint64_t parent;
  uint64_t splits;   // of the parent, in which all its ranks take part; 0: a shrink
  uint64_t shrinks;  // of the parent to these members; 0: a split
  uint64_t part;     // the color, or who the members are
};

/// A number that is distinct for every child of every parent.
uint64_t child_group(const ChildName& name) {
  Fnv1a hash;
  hash.mix(name.parent);
  hash.mix(name.splits);
  hash.mix(name.shrinks);
  hash.mix(name.part);
  return hash.value() | 1;  // 0 is no group
}

uint64_t hash_of(const std::vector<int>& members) {
  Fnv1a hash;
  for (const int member : members) {
    hash.mix(static_cast<uint64_t>(member));
  }
  return hash.value();
}

/// The number of the gather of all wishes. Waits for nobody.
Result<uint64_t> send_wish(const Communicator& parent, const Wish& mine) {
  std::string bytes(sizeof(mine), '\0');
  std::memcpy(bytes.data(), &mine, sizeof(mine));
  return parent.setup().exchange->begin_gather(std::move(bytes));
}

Result<std::vector<Wish>> take_wishes(Communicator& parent,
                                      uint64_t gather,
                                      const std::atomic<bool>* give_up) {
  const StallWatch::Splitting splitting(parent.process().stalls, parent.setup().group,
                                        parent.rank());
  PLEXUS_TRY(blobs, parent.setup().exchange->end_gather(gather, give_up));
  std::vector<Wish> wishes(blobs.size());
  for (size_t rank = 0; rank < blobs.size(); ++rank) {
    if (blobs[rank].size() != sizeof(Wish)) {
      return fail(Code::kInvalidUsage, "rank {} is not in the same ncclCommSplit call as rank {}",
                  rank, parent.rank());
    }
    std::memcpy(&wishes[rank], blobs[rank].data(), sizeof(Wish));
  }
  return wishes;
}

/// What the others are told.
Error why_it_failed(const Communicator& parent, const Error& error) {
  return fail(Code::kRemoteError, "ncclCommSplit: {}",
              parent.stop.load(std::memory_order_acquire) ? parent.stop_reason().message()
                                                          : error.message());
}

/// The ranks with this color, ordered by (key, rank).
std::vector<int> members_of(const std::vector<Wish>& wishes, int color) {
  std::vector<int> members;
  for (size_t rank = 0; rank < wishes.size(); ++rank) {
    if (wishes[rank].color == color) {
      members.push_back(static_cast<int>(rank));
    }
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return wishes[static_cast<size_t>(a)].key < wishes[static_cast<size_t>(b)].key;
  });
  return members;
}

/// A rank that has no memory for its part fails the parent, so that the others do not wait for it.
template <class Part>
Result<void> take_part(Communicator& parent, const Part& part) {
  try {
    return part();
  } catch (const std::bad_alloc&) {
    parent.fail_for_memory();
    return parent.stop_reason();
  }
}

/// A rank without a color, which a non-blocking split does not keep waiting.
Result<void> await_others(Communicator& parent, uint64_t gather, const CommConfig& config) {
  if (!config.blocking) {
    parent.setup().exchange->drop_gather(gather);
    return ok();
  }
  PLEXUS_TRY(take_wishes(parent, gather, nullptr));
  return ok();
}

/// A rank of a child that is being made.
struct Joining {
  std::optional<Visit> parent;  // which stays until all ranks have told their wishes
  int color = kNoColor;
  uint64_t group = 0;   // the child
  uint64_t gather = 0;  // of all wishes
  std::chrono::steady_clock::time_point started{};
  bool has_begun = false;
};

/// Waits for the wishes of all ranks of the parent.
Result<std::unique_ptr<Exchange>> find_siblings(const Joining& joining,
                                                const std::atomic<bool>* give_up) {
  Communicator& parent = **joining.parent;
  const auto wishes = take_wishes(parent, joining.gather, give_up);
  if (wishes.has_error()) {  // others may have all wishes, and wait for this rank
    parent.setup().exchange->fail_subgroup(joining.group, why_it_failed(parent, wishes.error()));
    return wishes.error().clone();
  }
  return insist_on_memory([&] {
    return parent.setup().exchange->subgroup(members_of(wishes.value(), joining.color),
                                             joining.group);
  });
}

/// Makes `made` a rank of the child.
Result<void> join(Communicator& made, Joining& joining) {
  Communicator& parent = **joining.parent;
  joining.has_begun = true;
  const std::atomic<bool>* const give_up = give_up_of(made, parent);
  std::unique_ptr<Exchange> exchange;
  PLEXUS_TRY(take_part(parent, [&]() -> Result<void> {
    PLEXUS_TRY(found, find_siblings(joining, give_up));
    exchange = std::move(found);
    return ok();
  }));
  const Config config = parent.setup().config;
  joining.parent.reset();
  return start_with_exchange(made, config, std::move(exchange), joining.started, give_up);
}

Result<void> start_child(Communicator& parent,
                         Communicator** child,
                         const CommConfig& child_config,
                         std::unique_ptr<Exchange> exchange,
                         std::chrono::steady_clock::time_point started) {
  // std::function wants a copyable closure.
  const auto shared =
      insist_on_memory([] { return std::make_shared<std::unique_ptr<Exchange>>(); });
  *shared = std::move(exchange);
  auto begun = catch_lack_of_memory([&] {
    return start_communicator(
        parent.process(), child, child_config,
        [shared, started, config = parent.setup().config, &parent](Communicator& made) {
          return start_with_exchange(made, config, std::move(*shared), started,
                                     give_up_of(made, parent));
        });
  });
  if (begun.has_error() && begun.error().code() != Code::kInProgress && *shared != nullptr) {
    (*shared)->announce_failure(begun.error());  // it did not even start: the others are waiting
  }
  return begun;
}

}  // namespace

Result<void> split(
    Communicator& parent, int color, int key, Communicator** child, const CommConfig* config) {
  *child = nullptr;
  CommConfig child_config = config == nullptr ? parent.comm_config() : *config;
  child_config.device = parent.comm_config().device;
  child_config.virtual_device = parent.comm_config().virtual_device;
  note_maker(parent.process(), &child_config);
  const bool shares = child_config.split_share || parent.comm_config().split_share;
  child_config.share_group = shares ? parent.share_group() : 0;
  return run_lifecycle_job([&parent, color, key, child, child_config]() -> Result<void> {
    PLEXUS_TRY(visit, Visit::begin(parent.process(), &parent));
    return take_part(*visit, [&]() -> Result<void> {
      const auto started = std::chrono::steady_clock::now();
      const uint64_t number = parent.next_split();
      const auto group = child_group({.parent = parent.setup().group,
                                      .splits = number,
                                      .shrinks = 0,
                                      .part = static_cast<uint64_t>(static_cast<uint32_t>(color))});
      PLEXUS_TRY(gather, send_wish(parent, {color, key}));
      if (color == kNoColor) {
        return await_others(parent, gather, child_config);
      }
      PLEXUS_TRY(kept, Visit::begin(parent.process(), &parent));
      const auto joining = insist_on_memory([] { return std::make_shared<Joining>(); });
      joining->parent.emplace(std::move(kept));
      joining->color = color;
      joining->group = group;
      joining->gather = gather;
      joining->started = started;
      auto begun = catch_lack_of_memory([&] {
        return start_communicator(parent.process(), child, child_config,
                                  [joining](Communicator& made) { return join(made, *joining); });
      });
      if (begun.has_error() && begun.error().code() != Code::kInProgress && !joining->has_begun) {
        parent.setup().exchange->fail_subgroup(group, begun.error());  // the others wait for it
      }
      return begun;
    });
  });
}

Result<void> shrink(Communicator& parent,
                    std::span<const int> excluded,
                    Communicator** child,
                    const CommConfig* config,
                    bool abort_parent) {
  *child = nullptr;
  CommConfig child_config = config == nullptr ? parent.comm_config() : *config;
  child_config.device = parent.comm_config().device;
  child_config.virtual_device = parent.comm_config().virtual_device;
  note_maker(parent.process(), &child_config);
  const bool shares = child_config.shrink_share || parent.comm_config().shrink_share;
  child_config.share_group = shares && !abort_parent ? parent.share_group() : 0;
  std::vector<int> members;
  for (int rank = 0; rank < parent.nranks(); ++rank) {
    if (std::find(excluded.begin(), excluded.end(), rank) == excluded.end()) {
      members.push_back(rank);
    }
  }
  return run_lifecycle_job([&parent, members, child, child_config, abort_parent]() -> Result<void> {
    PLEXUS_TRY(visit, Visit::begin(parent.process(), &parent));
    return take_part(*visit, [&]() -> Result<void> {
      const auto started = std::chrono::steady_clock::now();
      parent.give_up_survival();
      if (abort_parent) {
        parent.revoked.store(true, std::memory_order_relaxed);
        parent.stop_with(
            fail(Code::kInvalidUsage, "the communicator was shrunk with NCCL_SHRINK_ABORT"));
        wait_stopped(parent);
        parent.set_state(Code::kSuccess);  // that of the child says how the shrink ends
      }
      const auto group = child_group({.parent = parent.setup().group,
                                      .splits = 0,
                                      .shrinks = parent.next_shrink(members),
                                      .part = hash_of(members)});
      PLEXUS_TRY(exchange, insist_on_memory(
                               [&] { return parent.setup().exchange->subgroup(members, group); }));
      return start_child(parent, child, child_config, std::move(exchange), started);
    });
  });
}

}  // namespace plexus
