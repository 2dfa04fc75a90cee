// SPDX-License-Identifier: Apache-2.0
#include "core/bootstrap/introducer_server.hpp"

#include <memory>
#include <new>
#include <set>
#include <utility>

#include "core/base/log.hpp"
#include "core/base/thread.hpp"
#include "core/bootstrap/introducer.hpp"

namespace plexus {
namespace {

constexpr uint32_t kNobody = ~0U;  // neither a guest nor a rank
constexpr auto kIntroducerTick = std::chrono::milliseconds(100);

class IntroducerServer {
 public:
  IntroducerServer(const UniqueId& id, const IntroducerOptions& options)
      : options_(options),
        introducer_(
            id.job,
            [this](uint32_t guest, const Message& message) { links_->send(guest, message); }),
        deadline_(Deadline::after(options.join_time)) {}

  Result<void> listen(const UniqueId& id, Socket listener) {
    PLEXUS_TRY(links,
               LinkSet::make({.mode = options_.mode, .key = id.secret},
                             LinkSet::ListenerKey::kOfJob, std::move(listener), options_.times,
                             {.take = [this](LinkSet::Link link,
                                             const Message& message) { take(link, message); },
                              .end = [this](LinkSet::Link link, LinkSet::End,
                                            const std::string&) { introducer_.lose(link); },
                              .differ = [this](const std::string& why) { differ(why); }}));
    links_ = std::move(links);
    return ok();
  }

  void serve() {
    while (!is_over()) {
      links_->wait(kIntroducerTick);
      try {
        links_->progress();
      } catch (const std::bad_alloc&) {
        PLEXUS_WARN("bootstrap: no memory is left to introduce the ranks of a job");
        return;  // they see that the connection ends
      }
      if (!gave_up_ && deadline_.expired()) {
        gave_up_ = true;
        if (!introducer_.have_all_joined()) {
          introducer_.give_up();
        }
      }
    }
  }

 private:
  /// A process of this job will never get in.
  void differ(const std::string& why) {
    (void)introducer_.take(kNobody,
                           Message{.type = MessageType::kFail,
                                   .from = kNobody,
                                   .payload = encode(fail(Code::kInvalidUsage, "{}", why))});
  }
  void take(LinkSet::Link link, const Message& message) {
    if (!introducer_.anybody_came()) {
      deadline_ = Deadline::after(options_.join_time);
    }
    auto taken = introducer_.take(link, message);
    if (taken.has_error()) {
      links_->drop(link, taken.error().message());
    } else if (message.type == MessageType::kLeave) {
      links_->finish(link);
    }
  }
  [[nodiscard]] bool is_over() const {
    if (!introducer_.anybody_came()) {
      return gave_up_;
    }
    const bool awaits = !introducer_.have_all_joined() && !gave_up_ &&
                        (options_.stays || !introducer_.has_failed());
    return links_->is_empty() && !awaits;
  }

  IntroducerOptions options_;
  std::unique_ptr<LinkSet> links_;
  Introducer introducer_;
  Deadline deadline_;
  bool gave_up_ = false;
};

}  // namespace

Result<void> start_introducer(const UniqueId& id,
                              Socket listener,
                              const IntroducerOptions& options) {
  auto server = std::make_unique<IntroducerServer>(id, options);
  PLEXUS_TRY(server->listen(id, std::move(listener)));
  PLEXUS_TRY(thread, start_thread("introducing the ranks",
                                  [server = std::move(server)] { server->serve(); }));
  thread.detach();
  return ok();
}

}  // namespace plexus
