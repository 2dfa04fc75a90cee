// SPDX-License-Identifier: Apache-2.0
#include "core/comm/link_agreement.hpp"

#include <algorithm>
#include <iterator>

#include "core/base/bytes.hpp"
#include "core/transport/network/xdc_routes.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

constexpr uint32_t kSharesMax = 4096;

struct WireHead {
  uint32_t kind;
  uint32_t shares;
  uint64_t version;
  uint64_t at;
};

struct WireShare {
  uint32_t from;
  uint32_t to;
  uint32_t share;
};

}  // namespace

// ---- messages ----

std::string LinkAgreement::encode(const Message& message) {
  ByteWriter writer;
  writer.put(WireHead{.kind = static_cast<uint32_t>(message.kind),
                      .shares = static_cast<uint32_t>(message.shares.size()),
                      .version = message.version,
                      .at = message.at});
  for (const auto& [link, share] : message.shares) {
    writer.put(WireShare{.from = link.first, .to = link.second, .share = share});
  }
  return writer.take();
}

/// Only rank 0 leads, and only it is reported to.
Result<LinkAgreement::Message> LinkAgreement::decode(int from, std::string_view blob) const {
  const auto malformed = [&] {
    return fail(Code::kRemoteError,
                "rank {} sent a malformed message about links between datacenters: use the same "
                "version of Plexus on all ranks",
                from);
  };
  ByteReader reader(blob);
  const auto head = reader.take<WireHead>();
  if (reader.broken() || head.kind > static_cast<uint32_t>(Kind::kCancel) ||
      head.shares > kSharesMax) {
    return malformed();
  }
  Message message{.kind = static_cast<Kind>(head.kind), .version = head.version, .at = head.at};
  for (uint32_t i = 0; i < head.shares; ++i) {
    const auto share = reader.take<WireShare>();
    if (reader.broken() || share.from >= share.to || share.to >= options_.datacenters ||
        share.share == 0 || share.share >= kWholeShare) {
      return malformed();
    }
    message.shares[{share.from, share.to}] = share.share;
  }
  const bool is_leaders = message.kind == Kind::kPropose || message.kind == Kind::kCommit ||
                          message.kind == Kind::kCancel;
  if (!reader.rest().empty() || (is_leaders ? from != 0 : options_.rank != 0)) {
    return malformed();
  }
  return message;
}

void LinkAgreement::send(int to, Message message) {
  if (to == options_.rank) {
    to_self_.push_back(std::move(message));
  } else {
    posts_.push_back({.peer = to, .blob = encode(message)});
  }
}

void LinkAgreement::send_all(const Message& message) {
  for (int rank = 0; rank < options_.nranks; ++rank) {
    send(rank, message);
  }
}

LinkAgreement::Posts LinkAgreement::flush() {
  while (!to_self_.empty()) {
    const Message message = std::move(to_self_.front());
    to_self_.pop_front();
    handle(options_.rank, message);
  }
  return std::exchange(posts_, {});
}

// ---- every rank ----

LinkAgreement::Posts LinkAgreement::report(std::pair<uint32_t, uint32_t> link, uint32_t share) {
  if (share == kWholeShare) {
    own_.erase(link);
  } else {
    own_[link] = share;
  }
  send(0, {.kind = Kind::kReport, .shares = own_});
  return flush();
}

Result<LinkAgreement::Posts> LinkAgreement::take(int from, std::string_view blob) {
  PLEXUS_TRY(message, decode(from, blob));
  handle(from, message);
  return flush();
}

LinkAgreement::Posts LinkAgreement::leave() {
  is_over_ = true;
  if (led_.has_value()) {
    end(Kind::kCancel);
  }
  return flush();
}

LinkAgreement::Admission LinkAgreement::admit(uint64_t call) {
  if (proposal_.has_value() && proposal_->change.at <= call) {
    if (!std::exchange(proposal_->asked, true)) {
      send(0, {.kind = Kind::kRefuse, .version = proposal_->version, .at = call});
    }
    Posts posts = flush();  // which may end it, at rank 0
    if (proposal_.has_value() && proposal_->change.at <= call) {
      return {.may_begin = false, .shares = std::nullopt, .posts = std::move(posts)};
    }
    Admission admission = admit(call);
    std::move(admission.posts.begin(), admission.posts.end(), std::back_inserter(posts));
    admission.posts = std::move(posts);
    return admission;
  }
  std::optional<LinkShares> shares;
  while (!committed_.empty() && committed_.front().at <= call) {
    shares = std::move(committed_.front().shares);
    committed_.pop_front();
  }
  note_due();
  PLEXUS_DCHECK(due_ > call, due_, call);
  return {.may_begin = true, .shares = std::move(shares), .posts = {}};
}

void LinkAgreement::handle(int from, const Message& message) {
  switch (message.kind) {
    case Kind::kPropose:
      take_proposal(message);
      return;
    case Kind::kCommit:
    case Kind::kCancel:
      take_end(message);
      return;
    default:
      lead(from, message);
  }
}

void LinkAgreement::take_proposal(const Message& message) {
  proposal_ = Proposal{.version = message.version,
                       .change = {.at = message.at, .shares = message.shares},
                       .accepted = {}};
  note_due();
  // A call that begins from here on either sees what is due, or is counted.
  const uint64_t calls = options_.calls();
  if (calls < message.at) {
    send(0, {.kind = Kind::kAccept, .version = message.version});
    return;
  }
  proposal_.reset();
  note_due();
  send(0, {.kind = Kind::kRefuse, .version = message.version, .at = calls});
}

void LinkAgreement::take_end(const Message& message) {
  if (!proposal_.has_value() || proposal_->version != message.version) {
    return;  // refused here
  }
  if (message.kind == Kind::kCommit) {
    committed_.push_back(std::move(proposal_->change));
  }
  proposal_.reset();
  note_due();
}

void LinkAgreement::note_due() noexcept {
  uint64_t due = kNever;
  if (proposal_.has_value()) {
    due = proposal_->change.at;
  }
  if (!committed_.empty()) {
    due = std::min(due, committed_.front().at);
  }
  due_.store(due, std::memory_order_relaxed);
}

// ---- rank 0 ----

void LinkAgreement::lead(int from, const Message& message) {
  PLEXUS_DCHECK(options_.rank == 0, options_.rank);  // see decode()
  const bool is_of_led = led_.has_value() && led_->version == message.version;
  switch (message.kind) {
    case Kind::kReport:
      reports_[from] = message.shares;
      break;
    case Kind::kAccept:
      if (is_of_led) {
        led_->accepted.insert(from);
        PLEXUS_DCHECK(led_->accepted.size() <= static_cast<size_t>(options_.nranks), from);
        if (led_->accepted.size() == static_cast<size_t>(options_.nranks)) {
          agreed_ = led_->change.shares;
          agreed_at_ = led_->change.at;
          end(Kind::kCommit);
        }
      }
      break;
    default:  // kRefuse
      if (is_of_led) {
        farthest_ = std::max(farthest_, message.at);
        ahead_ = std::min(4 * ahead_, kAheadMax);
        end(Kind::kCancel);
      }
  }
  propose();
}

void LinkAgreement::end(Kind how) {
  PLEXUS_DCHECK(led_.has_value() && led_->version == versions_, versions_);
  send_all({.kind = how, .version = led_->version});
  led_.reset();
}

/// Behind the last change, which ranks may not have come to yet.
void LinkAgreement::propose() {
  LinkShares shares = worst();
  if (led_.has_value() || is_over_ || shares == agreed_) {
    return;
  }
  const uint64_t at = std::max({options_.calls(), farthest_, agreed_at_}) + ahead_;
  PLEXUS_DCHECK(at > agreed_at_ && ahead_ <= kAheadMax, at, agreed_at_, ahead_);
  led_ = Proposal{
      .version = ++versions_, .change = {.at = at, .shares = std::move(shares)}, .accepted = {}};
  send_all({.kind = Kind::kPropose,
            .version = led_->version,
            .at = led_->change.at,
            .shares = led_->change.shares});
}

/// The rank to which least is left counts, as the worst link does in the first description.
LinkShares LinkAgreement::worst() const {
  LinkShares least;
  for (const auto& [rank, shares] : reports_) {
    for (const auto& [link, share] : shares) {
      const auto [at, is_new] = least.emplace(link, share);
      at->second = std::min(at->second, share);
    }
  }
  return least;
}

}  // namespace plexus
