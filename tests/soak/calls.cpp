// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/calls.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "tests/soak/random.hpp"

namespace plexus::soak {
namespace {

constexpr size_t kGuardBytes = 64;
constexpr auto kGuard = std::byte{0xc7};
constexpr auto kUntouched = std::byte{0xa5};

}  // namespace

Buffer::Buffer(size_t size_bytes, size_t alignment, bool is_registered, uint64_t salt)
    : size_bytes_(size_bytes) {
  // Programs' buffers are aligned for their type, and seldom more.
  const size_t offset = kGuardBytes + salt % 4 * alignment;
  whole_bytes_ = offset + size_bytes + kGuardBytes;
  if (is_registered) {
    if (ncclMemAlloc(&registered_, whole_bytes_) != ncclSuccess) {
      return;
    }
    base_ = static_cast<std::byte*>(registered_);
  } else {
    plain_.resize(whole_bytes_);
    base_ = plain_.data();
  }
  std::fill_n(base_, whole_bytes_, kUntouched);
  data_ = base_ + offset;
  std::fill_n(data_ - kGuardBytes, kGuardBytes, kGuard);
  std::fill_n(data_ + size_bytes_, kGuardBytes, kGuard);
}

Buffer::~Buffer() {
  if (registered_ != nullptr) {
    ncclMemFree(registered_);
  }
}

bool Buffer::are_guards_whole() const {
  const auto is_guard = [](std::byte byte) { return byte == kGuard; };
  return std::all_of(data_ - kGuardBytes, data_, is_guard) &&
         std::all_of(data_ + size_bytes_, data_ + size_bytes_ + kGuardBytes, is_guard);
}

LiveCall::LiveCall(const Job& job, const Call& call, ncclComm_t comm, cudaStream_t stream)
    : call_(call),
      operation_(job.operations[static_cast<size_t>(call.operation)]),
      comm_(comm),
      stream_(stream),
      nranks_(static_cast<int>(job.comms[static_cast<size_t>(operation_.comm)].members.size())),
      salt_(mix(job.seed, static_cast<uint64_t>(call.operation)) >> 20),
      layout_(buffers_of(operation_, call, nranks_)) {
  is_in_place_ = call.is_in_place && layout_.can_be_in_place;
  if (operation_.op == Op::kAllToAllV || operation_.op == Op::kAllGatherV) {
    send_counts_ = send_counts(operation_, call.rank, nranks_);
    recv_counts_ = recv_counts(operation_, call.rank, nranks_);
  }
}

LiveCall::~LiveCall() = default;

ncclResult_t LiveCall::open_windows() {
  for (const Buffer* const buffer : {send_buffer_.get(), recv_buffer_.get()}) {
    if (buffer != nullptr) {
      windows_.push_back(nullptr);
      const ncclResult_t result = ncclCommWindowRegister(
          comm_, buffer->base(), buffer->whole_bytes(), &windows_.back(), NCCL_WIN_COLL_SYMMETRIC);
      if (result != ncclSuccess) {
        return result;
      }
    }
  }
  return ncclSuccess;
}

ncclResult_t LiveCall::make_buffers() {
  const size_t size = size_of(operation_.type);
  const auto make = [&](size_t count) {
    return std::make_unique<Buffer>(count * size, size,
                                    call_.is_registered || operation_.in_windows,
                                    salt_ + static_cast<uint64_t>(call_.rank));
  };
  if (is_in_place_) {
    send_buffer_ =
        make(std::max(layout_.send_at + layout_.send_count, layout_.recv_at + layout_.recv_count));
    if (send_buffer_->data() == nullptr) {
      return ncclSystemError;
    }
    send_ = send_buffer_->data() + layout_.send_at * size;
    recv_ = send_buffer_->data() + layout_.recv_at * size;
    return ncclSuccess;
  }
  send_buffer_ = make(layout_.send_count);
  recv_buffer_ = make(layout_.recv_count);
  if (send_buffer_->data() == nullptr || recv_buffer_->data() == nullptr) {
    return ncclSystemError;
  }
  // A buffer that is not used may be NULL.
  const bool gives_null = (salt_ + static_cast<uint64_t>(call_.rank)) % 3 == 0;
  send_ = layout_.send_count == 0 && gives_null ? nullptr : send_buffer_->data();
  recv_ = layout_.recv_count == 0 && gives_null ? nullptr : recv_buffer_->data();
  return ncclSuccess;
}

ncclResult_t LiveCall::prepare() {
  const ncclResult_t made = make_buffers();
  if (made != ncclSuccess) {
    return made;
  }
  if (operation_.in_windows) {
    const ncclResult_t opened = open_windows();
    if (opened != ncclSuccess) {
      return opened;
    }
  }
  if (layout_.send_count > 0) {
    write(operation_, layout_.send, salt_, nranks_, send_);
  }
  if (operation_.reduction != Reduction::kPreMulSum) {
    reduction_ = static_cast<ncclRedOp_t>(operation_.reduction);
    return ncclSuccess;
  }
  const bool reduces = operation_.op == Op::kAllReduce || operation_.op == Op::kReduce ||
                       operation_.op == Op::kReduceScatter;
  if (!reduces) {
    return ncclSuccess;
  }
  scalar_.resize(sizeof(double));
  encode(operation_.type, scalar_of(operation_, call_.rank), scalar_.data());
  const ncclResult_t result =
      ncclRedOpCreatePreMulSum(&reduction_, scalar_.data(), operation_.type,
                               salt_ % 2 == 0 ? ncclScalarHostImmediate : ncclScalarDevice, comm_);
  has_reduction_ = result == ncclSuccess;
  return result;
}

ncclResult_t LiveCall::release() {
  ncclResult_t result = has_reduction_ ? ncclRedOpDestroy(reduction_, comm_) : ncclSuccess;
  for (const ncclWindow_t window : windows_) {
    const ncclResult_t closed = ncclCommWindowDeregister(comm_, window);
    result = result == ncclSuccess ? closed : result;
  }
  windows_.clear();
  return result;
}

ncclResult_t LiveCall::issue_variable() {
  if (operation_.op == Op::kAllToAllV) {
    return plexusAllToAllV(send_, send_counts_.counts.data(), send_counts_.displacements.data(),
                           recv_, recv_counts_.counts.data(), recv_counts_.displacements.data(),
                           operation_.type, comm_, stream_);
  }
  return plexusAllGatherV(send_, layout_.send_count, recv_, recv_counts_.counts.data(),
                          recv_counts_.displacements.data(), operation_.type, comm_, stream_);
}

ncclResult_t LiveCall::issue_with_counts() {
  const std::vector<size_t> counts(static_cast<size_t>(nranks_), operation_.count);
  std::vector<size_t> places;
  for (size_t i = 0; i < counts.size(); ++i) {
    places.push_back(i * operation_.count);
  }
  const ncclDataType_t type = operation_.type;
  const size_t count = operation_.count;
  switch (operation_.op) {
    case Op::kReduceScatter:
      return plexusReduceScatterV(send_, counts.data(), places.data(), recv_, count, type,
                                  reduction_, comm_, stream_);
    case Op::kGather:
      return plexusGatherV(send_, count, recv_, counts.data(), places.data(), type, operation_.root,
                           comm_, stream_);
    case Op::kScatter:
      return plexusScatterV(send_, counts.data(), places.data(), recv_, count, type,
                            operation_.root, comm_, stream_);
    default:
      return plexusAllGatherV(send_, count, recv_, counts.data(), places.data(), type, comm_,
                              stream_);
  }
}

/// With a tag and a selection that some collectives lack: then any algorithm is taken.
ncclResult_t LiveCall::issue_configured() {
  constexpr std::array<const char*, 4> kSelections = {nullptr, "ring,tree", "^tree+^ring_ll",
                                                      "ring_simple,bruck"};
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.algSelection = kSelections[salt_ % kSelections.size()];
  config.forceAlgSelection = 0;
  config.maxCTAs = salt_ % 5 == 0 ? 1 : NCCL_CONFIG_UNDEF_INT;
  config.userProfilerTag = salt_;
  const Operation& call = operation_;
  const size_t count = call.count;
  switch (call.op) {
    case Op::kAllReduce:
      return ncclAllReduceConfig(send_, recv_, count, call.type, reduction_, comm_, stream_,
                                 &config);
    case Op::kBroadcast:
      return ncclBroadcastConfig(send_, recv_, count, call.type, call.root, comm_, stream_,
                                 &config);
    case Op::kReduce:
      return ncclReduceConfig(send_, recv_, count, call.type, reduction_, call.root, comm_, stream_,
                              &config);
    case Op::kAllGather:
      return ncclAllGatherConfig(send_, recv_, count, call.type, comm_, stream_, &config);
    case Op::kReduceScatter:
      return ncclReduceScatterConfig(send_, recv_, count, call.type, reduction_, comm_, stream_,
                                     &config);
    case Op::kAllToAll:
      return ncclAlltoAllConfig(send_, recv_, count, call.type, comm_, stream_, &config);
    case Op::kGather:
      return ncclGatherConfig(send_, recv_, count, call.type, call.root, comm_, stream_, &config);
    default:
      return ncclScatterConfig(send_, recv_, count, call.type, call.root, comm_, stream_, &config);
  }
}

ncclResult_t LiveCall::issue() {
  const auto& [op, comm, count, type, reduction, root, target, in_windows, form] = operation_;
  if (form != Form::kPlain) {
    return form == Form::kCounts ? issue_with_counts() : issue_configured();
  }
  switch (op) {
    case Op::kAllReduce:
      return ncclAllReduce(send_, recv_, count, type, reduction_, comm_, stream_);
    case Op::kBroadcast:
      if (is_in_place_ && salt_ % 2 == 0) {
        return ncclBcast(recv_, count, type, root, comm_, stream_);
      }
      return ncclBroadcast(send_, recv_, count, type, root, comm_, stream_);
    case Op::kReduce:
      return ncclReduce(send_, recv_, count, type, reduction_, root, comm_, stream_);
    case Op::kAllGather:
      return ncclAllGather(send_, recv_, count, type, comm_, stream_);
    case Op::kReduceScatter:
      return ncclReduceScatter(send_, recv_, count, type, reduction_, comm_, stream_);
    case Op::kAllToAll:
      return ncclAlltoAll(send_, recv_, count, type, comm_, stream_);
    case Op::kGather:
      return ncclGather(send_, recv_, count, type, root, comm_, stream_);
    case Op::kScatter:
      return ncclScatter(send_, recv_, count, type, root, comm_, stream_);
    case Op::kAllToAllV:
    case Op::kAllGatherV:
      return issue_variable();
    case Op::kPair:
      return call_.is_send ? ncclSend(send_, count, type, target, comm_, stream_)
                           : ncclRecv(recv_, count, type, root, comm_, stream_);
  }
  return ncclInternalError;
}

std::optional<std::string> LiveCall::find_difference(const std::vector<Segment>& segments,
                                                     size_t count,
                                                     const std::byte* actual,
                                                     const char* what) const {
  const size_t size = size_of(operation_.type);
  std::vector<std::byte> expected(count * size, kUntouched);
  write(operation_, segments, salt_, nranks_, expected.data());
  const auto [at, other] = std::mismatch(expected.begin(), expected.end(), actual);
  if (at == expected.end()) {
    return std::nullopt;
  }
  size_t nwrong = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    nwrong += expected[i] != actual[i] ? 1 : 0;
  }
  return fmt::format(
      "{}: {} of {} bytes differ, the first at element {} of {} (is {:#x}, must be {:#x})", what,
      nwrong, expected.size(), static_cast<size_t>(at - expected.begin()) / size, count,
      static_cast<int>(*other), static_cast<int>(*at));
}

std::optional<std::string> LiveCall::find_wrong_guards() const {
  if (!send_buffer_->are_guards_whole() ||
      (recv_buffer_ != nullptr && !recv_buffer_->are_guards_whole())) {
    return "bytes beside a buffer were written";
  }
  return std::nullopt;
}

std::optional<std::string> LiveCall::find_wrong() const {
  if (auto wrong = find_wrong_guards()) {
    return wrong;
  }
  if (layout_.recv_count > 0) {
    auto wrong = find_difference(layout_.recv, layout_.recv_count, recv_, "received");
    if (wrong.has_value()) {
      return wrong;
    }
  }
  if (!is_in_place_ && layout_.send_count > 0) {
    return find_difference(layout_.send, layout_.send_count, send_, "the caller's input");
  }
  return std::nullopt;
}

}  // namespace plexus::soak
