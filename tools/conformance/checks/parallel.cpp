// SPDX-License-Identifier: Apache-2.0
// Several connections, contexts and threads in one process at the same time.
#include <array>
#include <deque>
#include <thread>

#include "tools/conformance/check.hpp"
#include "tools/conformance/traffic.hpp"

namespace plexus::conformance {
namespace {

/// Messages over all pairs at once from one thread; each must arrive at its destination.
Result<void> exchange(Fixture& fixture, std::deque<Pair>& pairs, uint64_t size, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    std::deque<Bytes> messages;
    std::deque<GuardedBuffer> targets;
    Traffic traffic(fixture);
    for (size_t i = 0; i < pairs.size(); ++i) {
      messages.push_back(make_message(size + i, i + 1000 * static_cast<size_t>(round)));
      targets.emplace_back(size + i);
      PLEXUS_TRY(traffic.recv(pairs[i].recv, targets.back(), 4));
      PLEXUS_TRY(traffic.send(pairs[i].send, messages.back(), 4));
    }
    PLEXUS_TRY(traffic.finish());
    for (size_t i = 0; i < pairs.size(); ++i) {
      if (auto checked = targets[i].expect_message(messages[i]); checked.has_error()) {
        return std::move(checked).error().with_context(fmt::format("connection {}", i));
      }
    }
  }
  return ok();
}

Result<std::deque<Pair>> make_pairs(const Context& sender, const Context& receiver, int count) {
  std::deque<Pair> pairs;
  for (int i = 0; i < count; ++i) {
    PLEXUS_TRY(pair, connect_pair(sender, receiver));
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

Result<void> several_connections(const Context& context) {
  PLEXUS_TRY(pairs, make_pairs(context, context, 8));
  return exchange(*context.net().fixture, pairs, longest_message(context, 5000) - pairs.size(), 10);
}

Result<void> two_communicators(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(first, Context::open(net, 1));
  PLEXUS_TRY(second, Context::open(net, 2));
  PLEXUS_TRY(pairs, make_pairs(first, first, 3));
  PLEXUS_TRY(others, make_pairs(second, second, 3));
  for (Pair& pair : others) {
    pairs.push_back(std::move(pair));
  }
  others.clear();
  return exchange(fixture, pairs, longest_message(first, 3000) - pairs.size(), 10);
}

Result<void> one_ends_first(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(first, Context::open(net, 1));
  PLEXUS_TRY(second, Context::open(net, 2));
  PLEXUS_TRY(kept, connect_pair(first, first));
  {
    PLEXUS_TRY(ended, connect_pair(second, second));
    PLEXUS_TRY(deliver(ended, {.size_bytes = 100}));
  }
  second.close();
  return deliver(kept, {.size_bytes = 20000});
}

Result<void> two_instances(Fixture& fixture) {
  // Loaded twice, as by two different hosts in one process: they must not interfere.
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(other, Net::load(fixture));
  if (!net.is_native()) {
    return skip("a plugin of NCCL's ABI has one init per process");
  }
  PLEXUS_TRY(first, Context::open(net, 1));
  PLEXUS_TRY(second, Context::open(other, 1));
  PLEXUS_TRY(pair, connect_pair(first, second));
  return deliver(pair, {.size_bytes = 1000});
}

Result<void> duplex(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(first, Context::open(net, 1));
  PLEXUS_TRY(second, Context::open(net, 1));
  PLEXUS_TRY(there, connect_pair(first, second));
  PLEXUS_TRY(back, connect_pair(second, first));
  std::deque<Pair> pairs;
  pairs.push_back(std::move(there));
  pairs.push_back(std::move(back));
  return exchange(fixture, pairs, longest_message(first, 4 << 20) - 1, 3);
}

Result<void> stalled_neighbour(const Context& context) {
  PLEXUS_TRY(stalled, connect_pair(context, context));
  PLEXUS_TRY(busy, connect_pair(context, context));
  const Bytes message = make_message(longest_message(context, 1 << 20), 5);
  const Bytes ping = make_message(64, 6);
  GuardedBuffer target(message.size());
  Traffic traffic(*context.net().fixture);
  PLEXUS_TRY(traffic.send(stalled.send, message));  // no receive is posted yet
  GuardedBuffer idle(64);
  for (int i = 0; i < 100; ++i) {
    GuardedBuffer pong(64);
    PLEXUS_TRY(received, traffic.recv(busy.recv, pong));
    PLEXUS_TRY(traffic.send(busy.send, ping));
    PLEXUS_TRY(traffic.finish(*received));
    PLEXUS_TRY(pong.expect_message(ping));
  }
  PLEXUS_TRY(traffic.recv(stalled.recv, target));
  PLEXUS_TRY(traffic.finish());
  return target.expect_message(message);
}

/// Runs `f` in four threads, each with a pair of its own.
template <Result<void> (*f)(Pair&)>
Result<void> in_threads(const Context& context) {
  constexpr size_t kThreads = 4;
  PLEXUS_TRY(pairs, make_pairs(context, context, kThreads));
  std::array<std::string, kThreads> problems;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const Result<void> result = f(pairs[i]);
      problems[i] = result.has_error() ? result.error().message() : "";
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::string& problem : problems) {
    PLEXUS_TRY(expect(problem.empty(), "in one of {} threads: {}", kThreads, problem));
  }
  return ok();
}

Result<void> short_messages(Pair& pair) {
  const std::vector<TestMessage> messages(300, TestMessage{.size_bytes = 100});
  return deliver(pair, messages);
}
Result<void> long_messages(Pair& pair) {
  const std::vector<TestMessage> messages(10, TestMessage{.size_bytes = 60000});
  return deliver(pair, messages);
}

Result<void> ends_in_two_threads(Pair& pair) {
  const std::vector<TestMessage> messages(200, TestMessage{.size_bytes = 3000});
  std::string problem;
  std::thread sender([&] {
    const Result<void> sent = deliver_out(pair.send, messages);
    problem = sent.has_error() ? sent.error().message() : "";
  });
  const Result<void> received = deliver_in(pair.recv, messages);
  sender.join();
  PLEXUS_TRY(expect(problem.empty(), "the sending thread: {}", problem));
  return expect(received.has_value(), "the receiving thread: {}",
                received.has_error() ? received.error().message() : "");
}

Result<void> connects_in_threads(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  std::array<std::string, 4> problems;
  std::vector<Context> contexts;  // as in NCCL, made one after the other
  for (size_t i = 0; i < problems.size(); ++i) {
    PLEXUS_TRY(context, Context::open(net, i));
    contexts.push_back(std::move(context));
  }
  std::vector<std::thread> threads;
  for (size_t i = 0; i < problems.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto use = [&]() -> Result<void> {
        for (int round = 0; round < 8; ++round) {
          PLEXUS_TRY(pair, connect_pair(contexts[i], contexts[i]));
          PLEXUS_TRY(deliver(pair, {.size_bytes = 500}));
        }
        return ok();
      };
      const Result<void> result = use();
      problems[i] = result.has_error() ? result.error().message() : "";
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::string& problem : problems) {
    PLEXUS_TRY(expect(problem.empty(), "one of 4 threads with a context each: {}", problem));
  }
  return ok();
}

constexpr const char* kThreadRule =
    "plexus_net.h Threads: calls on different handles may be concurrent";
constexpr const char* kContextRule =
    "plexus_net.h init: the context shares no state with other contexts";
constexpr const char* kFairRule =
    "plexus_net.h: no entry blocks, so that one connection does not hold up another";

constexpr std::array kChecks = {
    Check{"parallel.connections", "keeps 8 connections apart", kContextRule,
          on_context<several_connections>},
    Check{"parallel.communicators", "keeps two communicators apart", kContextRule,
          two_communicators},
    Check{"parallel.end", "keeps a communicator when another is finalized", kContextRule,
          one_ends_first},
    Check{"parallel.instances", "serves two loads of the library", kContextRule, two_instances},
    Check{"parallel.duplex", "carries long messages in both directions concurrently", kFairRule,
          duplex},
    Check{"parallel.stalled", "serves a connection while another is idle", kFairRule,
          on_context<stalled_neighbour>},
    Check{"parallel.threads_short", "serves 4 threads with short messages", kThreadRule,
          on_context<in_threads<short_messages>>},
    Check{"parallel.threads_long", "serves 4 threads with long messages", kThreadRule,
          on_context<in_threads<long_messages>>},
    Check{"parallel.ends", "serves both ends in two threads", kThreadRule,
          on_pair<ends_in_two_threads>},
    Check{"parallel.contexts", "connects 4 contexts in 4 threads", kThreadRule,
          connects_in_threads},
};

}  // namespace

CheckTable parallel_checks() { return kChecks; }

}  // namespace plexus::conformance
