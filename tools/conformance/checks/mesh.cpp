// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process, each connected to all others at the same time: every message
// names its sender and receiver and must arrive there. A plugin that identifies connections by less
// than the connection (by the process, or by a shared endpoint) confuses them here, which checks of
// pairs do not reveal.
#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstring>
#include <deque>
#include <thread>

#include "tools/conformance/check.hpp"
#include "tools/conformance/traffic.hpp"

namespace plexus::conformance {
namespace {

constexpr uint32_t kMessages = 24;  // per connection
constexpr std::array<uint64_t, 4> kSizes = {40, 4096, 700, 60000};

/// The first bytes of every message.
struct Label {
  static constexpr uint64_t kMagic = 0x506C6578754D6573u;
  uint64_t magic = kMagic;
  uint32_t communicator = 0;
  uint32_t source = 0;
  uint32_t target = 0;
  uint32_t sequence = 0;
};

uint64_t size_of(const Label& label, const Context& context) {
  return longest_message(context, kSizes[label.sequence % kSizes.size()]);
}

Bytes make_labelled(const Label& label, uint64_t size_bytes) {
  const uint64_t seed =
      ((uint64_t{label.communicator} * 64 + label.source) * 64 + label.target) * kMessages +
      label.sequence;
  Bytes message = make_message(size_bytes, seed);
  std::memcpy(message.data(), &label, sizeof label);
  return message;
}

/// Checks that no other message is in this one's place.
Result<void> expect_label(GuardedBuffer& target, const Label& label) {
  Label found;
  std::memcpy(&found, target.data(), sizeof found);
  const bool is_right = found.magic == Label::kMagic && found.communicator == label.communicator &&
                        found.source == label.source && found.target == label.target &&
                        found.sequence == label.sequence;
  if (!is_right && found.magic == Label::kMagic) {
    return wrong(
        "rank {} of communicator {} received as message {} of rank {} the message {} of rank {} to "
        "rank {} of communicator {}",
        label.target, label.communicator, label.sequence, label.source, found.sequence,
        found.source, found.target, found.communicator);
  }
  return target.expect_message(make_labelled(label, target.size_bytes()));
}

/// State that all ranks share.
struct Mesh {
  Mesh(const Net& of, uint32_t number, uint32_t size)
      : net(&of), communicator(number), ranks(size), handles(size, std::vector<NetHandle>(size)) {}
  const Net* net;
  uint32_t communicator;
  uint32_t ranks;
  std::vector<std::vector<NetHandle>> handles;  // [target][source]
};

/// One rank's ends; `sends` and `recvs` by peer, empty for the rank itself.
struct Rank {
  Mesh* mesh;
  uint32_t number;
  Context context;
  std::deque<Listen> listens;
  std::deque<Send> sends;
  std::deque<Recv> recvs;
  std::vector<uint32_t> peers;
};

Result<void> listen_for_all(Rank& rank) {
  for (uint32_t peer = 0; peer < rank.mesh->ranks; ++peer) {
    if (peer != rank.number) {
      PLEXUS_TRY(listen, rank.context.listen());
      rank.mesh->handles[rank.number][peer] = listen.handle();
      rank.listens.push_back(std::move(listen));
      rank.peers.push_back(peer);
    }
  }
  return ok();
}

/// Makes all connections of the rank at the same time, in turns.
Result<void> connect_to_all(Rank& rank) {
  const size_t count = rank.peers.size();
  for (size_t i = 0; i < count; ++i) {
    rank.sends.push_back(rank.context.connect(rank.mesh->handles[rank.peers[i]][rank.number]));
    rank.recvs.push_back(rank.listens[i].accept());
  }
  std::vector<std::array<bool, 2>> has(count);
  return rank.mesh->net->fixture->wait_until(
      "connections of each rank with all others", [&]() -> Result<bool> {
        bool is_done = true;
        for (size_t i = 0; i < count; ++i) {
          PLEXUS_TRY(both, progress(rank.sends[i], has[i][0], rank.recvs[i], has[i][1]));
          is_done = is_done && both;
        }
        return is_done;
      });
}

Result<void> exchange_with_all(Rank& rank) {
  struct Arrival {
    Label label;
    GuardedBuffer target;
  };
  std::deque<Bytes> messages;
  std::deque<Arrival> arrivals;
  Traffic traffic(*rank.mesh->net->fixture);
  for (uint32_t sequence = 0; sequence < kMessages; ++sequence) {
    for (size_t i = 0; i < rank.peers.size(); ++i) {
      const uint32_t peer = rank.peers[i];
      const Label in = {Label::kMagic, rank.mesh->communicator, peer, rank.number, sequence};
      const Label out = {Label::kMagic, rank.mesh->communicator, rank.number, peer, sequence};
      arrivals.push_back({in, GuardedBuffer(size_of(in, rank.context))});
      PLEXUS_TRY(traffic.recv(rank.recvs[i], arrivals.back().target));
      messages.push_back(make_labelled(out, size_of(out, rank.context)));
      PLEXUS_TRY(traffic.send(rank.sends[i], messages.back()));
    }
  }
  PLEXUS_TRY(traffic.finish());
  for (Arrival& arrival : arrivals) {
    PLEXUS_TRY(expect_label(arrival.target, arrival.label));
  }
  return ok();
}

/// The steps of one thread, which drives one rank of each communicator. All threads take each step
/// together, so that a failed thread does not block others.
class Thread {
 public:
  explicit Thread(std::vector<Rank*> ranks) : ranks_(std::move(ranks)) {}
  void run(std::barrier<>& barrier, std::atomic<bool>& has_failed) {
    for (auto* const step : {&listen_for_all, &connect_to_all, &exchange_with_all}) {
      for (size_t i = 0; i < ranks_.size() && !has_failed && problem_.empty(); ++i) {
        const Result<void> result = step(*ranks_[i]);
        problem_ = result.has_error() ? result.error().message() : "";
      }
      has_failed = has_failed || !problem_.empty();
      barrier.arrive_and_wait();
    }
  }
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }

 private:
  std::vector<Rank*> ranks_;
  std::string problem_;
};

template <uint32_t kRanks, uint32_t kCommunicators>
Result<void> mesh_of_threads(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  std::deque<Mesh> meshes;
  std::deque<Rank> ranks;
  std::vector<std::vector<Rank*>> of_thread(kRanks);
  for (uint32_t communicator = 0; communicator < kCommunicators; ++communicator) {
    meshes.emplace_back(net, communicator, kRanks);
    for (uint32_t number = 0; number < kRanks; ++number) {
      PLEXUS_TRY(context, Context::open(net, 100 + communicator));
      ranks.push_back({&meshes.back(), number, std::move(context), {}, {}, {}, {}});
      of_thread[number].push_back(&ranks.back());
    }
  }
  std::barrier barrier(kRanks);
  std::atomic<bool> has_failed{false};
  std::deque<Thread> threads;
  std::vector<std::thread> running;
  for (const std::vector<Rank*>& own : of_thread) {
    Thread& thread = threads.emplace_back(own);
    running.emplace_back([&thread, &barrier, &has_failed] { thread.run(barrier, has_failed); });
  }
  for (std::thread& thread : running) {
    thread.join();
  }
  for (const Thread& thread : threads) {
    PLEXUS_TRY(expect(thread.problem().empty(), "{}", thread.problem()));
  }
  return ok();
}

constexpr const char* kRule =
    "plexus_net.h connect: a connection has two ends; what is sent into one comes out of the other";
constexpr CheckOptions kLong = {.limit = seconds(40)};

constexpr std::array kChecks = {
    Check{"mesh.threads", "keeps the messages between 4 ranks in 4 threads apart", kRule,
          mesh_of_threads<4, 1>, kLong},
    Check{"mesh.communicators", "keeps two communicators of 3 ranks in 3 threads apart", kRule,
          mesh_of_threads<3, 2>, kLong},
};

}  // namespace

CheckTable mesh_checks() { return kChecks; }

}  // namespace plexus::conformance
