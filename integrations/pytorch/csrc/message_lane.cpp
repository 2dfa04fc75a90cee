// SPDX-License-Identifier: Apache-2.0
#include "message_lane.hpp"

#include <c10/util/Exception.h>

namespace torch_plexus {
namespace {

constexpr const char* kTaken = "/taken";

}  // namespace

MessageLane::MessageLane(c10d::Store& store, int source, int target, bool sends)
    : store_(store),
      source_(source),
      target_(target),
      sends_(sends),
      key_(c10::str("plexus_lane/", source, "/", target)) {
  if (sends_) {
    check(ncclGetUniqueId(&id_), "ncclGetUniqueId", nullptr);
    publish_id(store_, key_, id_);
  }
}

MessageLane::~MessageLane() {
  if (making_ != nullptr) {
    (void)ncclCommAbort(making_);
  }
}

void MessageLane::progress() {
  if (making_ == nullptr) {
    // Joining is bounded by a time of its own, so it begins when both are there.
    if (store_.check({sends_ ? key_ + kTaken : key_})) {
      begin();
    }
    return;
  }
  ncclResult_t state = ncclInProgress;
  check(ncclCommGetAsyncError(making_, &state), "ncclCommGetAsyncError", making_);
  if (state == ncclInProgress) {
    return;
  }
  check(state, "connecting two ranks for messages", making_);
  comm_ = std::make_unique<Communicator>(std::exchange(making_, nullptr),
                                         std::vector<int>{source_, target_});
}

void MessageLane::begin() {
  if (!sends_) {
    id_ = read_id(store_, key_);
    store_.set(key_ + kTaken, std::vector<uint8_t>{1});
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = ncclCommInitRankConfig(&making_, 2, id_, sends_ ? 0 : 1, &config);
  check(result == ncclInProgress ? ncclSuccess : result, "connecting two ranks for messages",
        nullptr);
}

}  // namespace torch_plexus
