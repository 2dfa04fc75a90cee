// SPDX-License-Identifier: Apache-2.0
#include "core/comm/link_facts.hpp"

#include <algorithm>
#include <chrono>

#include "core/control/control_tag.hpp"
#include "core/os/asymmetric_fence.hpp"

namespace plexus {
namespace {

constexpr uint64_t kTag = tag_of(ControlTag::kLinkFacts, 0);
constexpr auto kLookEvery = std::chrono::milliseconds(10);

}  // namespace

LinkFacts::LinkFacts(const Options& options)
    : options_(options),
      agreement_({.rank = options.exchange->rank(),
                  .nranks = options.exchange->nranks(),
                  .datacenters = options.datacenters,
                  .calls = [calls = options.calls] {
                    heavy_fence();  // pairs with that of InCall
                    return calls->collectives();
                  }}) {
  options_.exchange->on_post(kTag,
                             [this](const Exchange::Posted& message) { return take(message); });
}

LinkAgreement::Posts LinkFacts::take(const Exchange::Posted& message) {
  const std::lock_guard lock(mutex_);
  auto posts = agreement_.take(message.peer, message.blob);
  changed_.notify_all();
  if (posts.has_error()) {
    error_ = std::move(posts).error();
    return {};
  }
  return std::move(posts).value();
}

void LinkFacts::post(LinkAgreement::Posts posts) {
  for (Exchange::Posted& each : posts) {
    // What is refused is of a group that has ended.
    (void)options_.exchange->post(each.peer, kTag, std::move(each.blob));
  }
}

void LinkFacts::report(uint32_t datacenter, uint32_t share) {
  LinkAgreement::Posts posts;
  {
    const std::lock_guard lock(mutex_);
    posts = agreement_.report(std::minmax(options_.datacenter, datacenter), share);
  }
  post(std::move(posts));
}

void LinkFacts::leave() {
  LinkAgreement::Posts posts;
  {
    const std::lock_guard lock(mutex_);
    posts = agreement_.leave();
  }
  post(std::move(posts));
}

Result<std::optional<LinkShares>> LinkFacts::admit(uint64_t call) {
  std::unique_lock lock(mutex_);
  for (;;) {
    LinkAgreement::Admission admission = agreement_.admit(call);
    if (!admission.posts.empty()) {
      lock.unlock();
      post(std::move(admission.posts));
      lock.lock();
    }
    if (error_.has_value()) {
      return error_->clone();
    }
    if (admission.may_begin || options_.gives_up()) {
      return std::move(admission.shares);  // a rank that has stopped fails the call itself
    }
    changed_.wait_for(lock, kLookEvery);
  }
}

}  // namespace plexus
