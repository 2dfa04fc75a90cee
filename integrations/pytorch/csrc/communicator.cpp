// SPDX-License-Identifier: Apache-2.0
#include "communicator.hpp"

#include <c10/util/Exception.h>
#include <cstring>
#include <regex>
#include <thread>
#include <unistd.h>
#include <utility>

namespace torch_plexus {
namespace {

constexpr const char* kIdKey = "plexus_unique_id";
constexpr auto kPollStore = std::chrono::milliseconds(2);

ncclUniqueId receive_id(c10d::Store& store, std::chrono::milliseconds timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  // Store::get and wait hold the store's connection: another thread's set would wait behind them.
  while (!store.check({kIdKey})) {
    TORCH_CHECK(std::chrono::steady_clock::now() < until,
                "plexus: rank 0 of the group did not come within ", timeout.count(),
                " ms; see whether its process runs, or give a longer timeout");
    std::this_thread::sleep_for(kPollStore);
  }
  return read_id(store, kIdKey);
}

}  // namespace

void check(ncclResult_t result, const char* what, ncclComm_t comm) {
  TORCH_CHECK(result == ncclSuccess, "plexus: ", what, ": ", ncclGetLastError(comm));
}

std::exception_ptr make_error(const std::string& text) {
  return std::make_exception_ptr(c10::Error({__func__, __FILE__, __LINE__}, text));
}

void publish_id(c10d::Store& store, const std::string& key, const ncclUniqueId& id) {
  const auto* const begin = reinterpret_cast<const uint8_t*>(&id);
  store.set(key, std::vector<uint8_t>(begin, begin + sizeof id));
}

ncclUniqueId read_id(c10d::Store& store, const std::string& key) {
  const std::vector<uint8_t> bytes = store.get(key);
  ncclUniqueId id{};
  TORCH_CHECK(bytes.size() == sizeof id, "plexus: the store's key ", key, " has ", bytes.size(),
              " bytes in place of ", sizeof id, "; give each job a store of its own");
  std::memcpy(&id, bytes.data(), sizeof id);
  return id;
}

std::unique_ptr<Communicator> Communicator::make(c10d::Store& store,
                                                 int rank,
                                                 int size,
                                                 std::chrono::milliseconds timeout) {
  ncclUniqueId id{};
  if (rank == 0) {
    check(ncclGetUniqueId(&id), "ncclGetUniqueId", nullptr);
    publish_id(store, kIdKey, id);
  } else {
    id = receive_id(store, timeout);
  }
  ncclComm_t comm = nullptr;
  check(ncclCommInitRank(&comm, size, id, rank), "making the process group", nullptr);
  return std::make_unique<Communicator>(comm);
}

Communicator::Communicator(ncclComm_t comm, std::vector<int> numbers)
    : process_(getpid()), comm_(comm), numbers_(std::move(numbers)) {
  int device = 0;
  check(ncclCommUserRank(comm_, &rank_), "ncclCommUserRank", comm_);
  check(ncclCommCount(comm_, &size_), "ncclCommCount", comm_);
  check(ncclCommCuDevice(comm_, &device), "ncclCommCuDevice", comm_);
  TORCH_CHECK(
      device < 0,
      "plexus: the group's ranks are CUDA devices, but the backend is for CPU tensors; unset "
      "PLEXUS_DEVICE or set it to host");
  check(plexusStreamCreate(&stream_), "plexusStreamCreate", comm_);
}

Communicator::~Communicator() {
  if (!is_own_process()) {
    return;
  }
  const bool succeeded = wait_stream();
  (void)plexusStreamDestroy(stream_);
  if (!is_aborted_) {
    (void)(succeeded ? ncclCommDestroy(comm_) : ncclCommAbort(comm_));
  }
}

bool Communicator::wait_stream() { return plexusStreamSynchronize(stream_) == ncclSuccess; }

void Communicator::check_not_aborted() const {
  const std::lock_guard lock(reason_mutex_);
  TORCH_CHECK(!is_aborted_,
              "plexus: this rank has aborted the group, so that it cannot be one of those that are "
              "left; shrink without abort()");
}

std::unique_ptr<Communicator> Communicator::shrink(std::vector<int> excluded) {
  check_not_aborted();
  ncclComm_t rest = nullptr;
  check(ncclCommShrink(comm_, excluded.data(), static_cast<int>(excluded.size()), &rest, nullptr,
                       NCCL_SHRINK_ABORT),
        "shrinking the process group", nullptr);
  return std::make_unique<Communicator>(rest);
}

std::vector<int> Communicator::gone_ranks() const {
  check_not_aborted();
  std::vector<int> gone(static_cast<size_t>(size_));
  int count = 0;
  check(plexusCommGoneRanks(comm_, gone.data(), &count), "plexusCommGoneRanks", comm_);
  gone.resize(static_cast<size_t>(count));
  return gone;
}

bool Communicator::is_own_process() const noexcept { return getpid() == process_; }

ncclComm_t Communicator::usable() const {
  TORCH_CHECK(is_own_process(), "plexus: this process was forked from process ", process_,
              ", which made the process group; a child makes a group of its own with "
              "init_process_group, or leaves communication to its parent");
  const std::string reason = ended_for();
  TORCH_CHECK(reason.empty(), reason);
  return comm_;
}

/// False: it was ended before.
bool Communicator::end_for(const std::string& reason) {
  const std::lock_guard lock(reason_mutex_);
  if (!ended_for_.empty()) {
    return false;
  }
  ended_for_ = reason;
  return true;
}

void Communicator::revoke(const std::string& reason) {
  if (end_for(reason)) {
    (void)ncclCommRevoke(comm_, NCCL_REVOKE_DEFAULT);
  }
}

void Communicator::abort(const std::string& reason) {
  (void)end_for(reason);
  {
    const std::lock_guard lock(reason_mutex_);
    if (std::exchange(is_aborted_, true)) {
      return;
    }
  }
  (void)ncclCommAbort(comm_);
}

std::string Communicator::ended_for() const {
  const std::lock_guard lock(reason_mutex_);
  return ended_for_;
}

std::string Communicator::stream_failure() const {
  const ncclResult_t result = plexusStreamQuery(stream_);
  if (result == ncclSuccess || result == ncclInProgress) {
    return "";
  }
  const std::string reason = ended_for();
  return reason.empty() ? "plexus: " + renumber(ncclGetLastError(comm_)) : reason;
}

std::exception_ptr Communicator::explain(std::exception_ptr error) const {
  const std::string reason = ended_for();
  return reason.empty() ? error : make_error(reason);
}

/// "rank 0 (host:pid)" of a pair's communicator is another number in the group.
std::string Communicator::renumber(std::string text) const {
  if (numbers_.empty()) {
    return text;
  }
  static const std::regex kRank("rank ([0-9]+)");
  std::string renumbered;
  auto at = text.cbegin();
  for (std::sregex_iterator match(text.cbegin(), text.cend(), kRank), end; match != end; ++match) {
    const auto rank = static_cast<size_t>(std::stoul((*match)[1]));
    renumbered.append(at, (*match)[0].first);
    renumbered += "rank " + std::to_string(rank < numbers_.size() ? numbers_[rank] : -1);
    at = (*match)[0].second;
  }
  return renumbered.append(at, text.cend());
}

}  // namespace torch_plexus
