// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/bench.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <sched.h>
#include <sstream>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "tools/conformance/traffic.hpp"

namespace plexus::conformance {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::array<uint64_t, 9> kSizes = {8,       64,      1024,    8192,   65536,
                                            1 << 18, 1 << 20, 1 << 22, 1 << 24};
constexpr uint64_t kLatencySizeMost = 1 << 20;
constexpr size_t kWindow = 8;

/// A wait within a message: between two looks it yields only now and then, because a yield is a
/// system call, and what is measured is the plugin.
class Spin {
 public:
  void rest() noexcept {
    constexpr uint32_t kLooksPerYield = 16;
    if (++looks_ % kLooksPerYield == 0) {
      ::sched_yield();
    }
  }

 private:
  uint32_t looks_ = 0;
};

/// One end of both connections, with a registered buffer for each.
struct Ends {
  Send& send;
  Recv& recv;
  Bytes& out;
  Bytes& in;
  plexus_net_memory_t* out_memory;
  plexus_net_memory_t* in_memory;
};

/// True: the request is done, and null now.
template <class End>
Result<bool> try_complete(End& end, plexus_net_request_t*& request) {
  if (request == nullptr) {
    return true;
  }
  const int32_t code = end.test(request, nullptr);
  if (code != PLEXUS_OK && code != PLEXUS_AGAIN) {
    return failed(end.net().fixture->monitor(), "test", code);
  }
  request = code == PLEXUS_OK ? nullptr : request;
  return code == PLEXUS_OK;
}

/// Tests until `received` is done. `sent`, which may be null, is tested too: a send advances only
/// when it is tested.
Result<void> complete_recv(Ends& ends,
                           plexus_net_request_t*& received,
                           plexus_net_request_t*& sent) {
  for (Spin spin;; spin.rest()) {
    PLEXUS_TRY(is_done, try_complete(ends.recv, received));
    if (is_done) {
      return ok();
    }
    PLEXUS_TRY(try_complete(ends.send, sent));
  }
}

Result<void> complete_send(Ends& ends, plexus_net_request_t*& sent) {
  for (Spin spin;; spin.rest()) {
    PLEXUS_TRY(is_done, try_complete(ends.send, sent));
    if (is_done) {
      return ok();
    }
  }
}

/// Tries to start one send or one receive.
Result<plexus_net_request_t*> try_send(Ends& ends, uint64_t size) {
  plexus_net_request_t* request = nullptr;
  const int32_t code = ends.send.isend(ends.out.data(), size, 0, ends.out_memory, &request);
  if (code != PLEXUS_OK && code != PLEXUS_AGAIN) {
    return failed(ends.send.net().fixture->monitor(), "isend", code);
  }
  return code == PLEXUS_OK ? request : nullptr;
}
Result<plexus_net_request_t*> try_recv(Ends& ends, uint64_t size) {
  const plexus_net_buffer_t buffer{ends.in.data(), size, ends.in_memory, 0, 0};
  plexus_net_request_t* request = nullptr;
  const int32_t code = ends.recv.irecv({&buffer, 1}, &request);
  if (code != PLEXUS_OK && code != PLEXUS_AGAIN) {
    return failed(ends.recv.net().fixture->monitor(), "irecv", code);
  }
  return code == PLEXUS_OK ? request : nullptr;
}

template <class End, class Start>
Result<void> stream(Ends& ends, End& end, Start start, uint64_t size, uint32_t count) {
  std::array<plexus_net_request_t*, kWindow> window{};
  uint32_t started = 0;
  uint32_t ended = 0;
  while (ended < count) {
    if (started < count && started - ended < kWindow) {
      PLEXUS_TRY(request, start(ends, size));
      if (request != nullptr) {
        window[started++ % kWindow] = request;
        continue;
      }
    }
    if (started == ended) {
      ::sched_yield();
      continue;
    }
    const int32_t code = end.test(window[ended % kWindow], nullptr);
    if (code == PLEXUS_OK) {
      ++ended;
    } else if (code != PLEXUS_AGAIN) {
      return failed(end.net().fixture->monitor(), "test", code);
    } else {
      ::sched_yield();
    }
  }
  return ok();
}

Result<void> send_many(Ends& ends, uint64_t size, uint32_t count) {
  return stream(ends, ends.send, try_send, size, count);
}
Result<void> recv_many(Ends& ends, uint64_t size, uint32_t count) {
  return stream(ends, ends.recv, try_recv, size, count);
}

/// Repeats `start` while the queue is full.
template <class Start>
Result<plexus_net_request_t*> start_one(Ends& ends, Start start, uint64_t size) {
  while (true) {
    PLEXUS_TRY(request, start(ends, size));
    if (request != nullptr) {
      return request;
    }
    ::sched_yield();
  }
}

/// Half round trips in us, sorted; measured by process 0. Receives are posted ahead, as hosts do,
/// so that no message waits for a buffer.
Result<std::vector<double>> ping_pong(Ends& ends, bool is_first, uint64_t size, uint32_t count) {
  constexpr uint32_t kAhead = 2;
  std::array<plexus_net_request_t*, kAhead> posted{};
  for (uint32_t i = 0; i < std::min(kAhead, count); ++i) {
    PLEXUS_TRY(request, start_one(ends, try_recv, size));
    posted[i] = request;
  }
  plexus_net_request_t* sent = nullptr;
  std::vector<double> times;
  for (uint32_t i = 0; i < count; ++i) {
    const auto begin = Clock::now();
    if (!is_first) {
      PLEXUS_TRY(complete_recv(ends, posted[i % kAhead], sent));
      PLEXUS_TRY(complete_send(ends, sent));
    }
    PLEXUS_TRY(fresh, start_one(ends, try_send, size));
    sent = fresh;
    if (is_first) {
      PLEXUS_TRY(complete_recv(ends, posted[i % kAhead], sent));
    }
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / 2);
    if (is_first) {
      PLEXUS_TRY(complete_send(ends, sent));
    }
    if (i + kAhead < count) {
      PLEXUS_TRY(request, start_one(ends, try_recv, size));
      posted[i % kAhead] = request;
    }
  }
  PLEXUS_TRY(complete_send(ends, sent));
  std::sort(times.begin(), times.end());
  return times;
}

Result<BenchRow> measure_size(Ends& ends, Fixture& fixture, uint64_t size) {
  const bool is_first = fixture.role() == 0;
  const uint64_t messages = (uint64_t{fixture.subject().bench_mebibytes} << 20) / size;
  BenchRow row{size, 0, 0, 0};
  PLEXUS_TRY(fixture.peer().meet());
  if (size <= kLatencySizeMost) {
    const auto rounds = static_cast<uint32_t>(std::clamp<uint64_t>(messages, 30, 300));
    PLEXUS_TRY(ping_pong(ends, is_first, size, rounds / 10));
    PLEXUS_TRY(times, ping_pong(ends, is_first, size, rounds));
    row.latency_us_min = times.front();
    row.latency_us_median = times[times.size() / 2];
  }
  const auto count = static_cast<uint32_t>(std::clamp<uint64_t>(messages, kWindow, 5000));
  const auto begin = Clock::now();
  if (is_first) {
    PLEXUS_TRY(send_many(ends, size, count));
    PLEXUS_TRY(recv_many(ends, 1, 1));  // the other process has received everything
  } else {
    PLEXUS_TRY(recv_many(ends, size, count));
    PLEXUS_TRY(send_many(ends, 1, 1));
  }
  const double time_s = std::chrono::duration<double>(Clock::now() - begin).count();
  row.bandwidth_gb_per_s = static_cast<double>(size) * count / time_s / 1e9;
  return row;
}

/// Leaves the rows in the status of process 0.
Result<void> measure(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  const bool is_first = fixture.role() == 0;
  // Process 0 connects first and then accepts; process 1 accepts first.
  std::optional<Send> send;
  if (is_first) {
    PLEXUS_TRY(made, connect_to_peer(context));
    send.emplace(std::move(made));
  }
  PLEXUS_TRY(recv, accept_from_peer(context));
  if (!is_first) {
    PLEXUS_TRY(made, connect_to_peer(context));
    send.emplace(std::move(made));
  }
  const uint64_t longest = std::min(kSizes.back(), context.properties().message_bytes_max);
  Bytes out(longest);
  Bytes in(longest);
  PLEXUS_TRY(out_memory, send->register_memory(out.data(), out.size()));
  PLEXUS_TRY(in_memory, recv.register_memory(in.data(), in.size()));
  Ends ends{*send, recv, out, in, out_memory, in_memory};
  std::string rows;
  for (const uint64_t size : kSizes) {
    if (size <= longest) {
      PLEXUS_TRY(row, measure_size(ends, fixture, size));
      rows += fmt::format("{} {} {} {}\n", row.size_bytes, row.latency_us_min,
                          row.latency_us_median, row.bandwidth_gb_per_s);
    }
  }
  deregister(net, out_memory);
  deregister(net, in_memory);
  fixture.status().text.set(rows);
  return fixture.peer().meet();
}

constexpr Check kBench = {
    "bench", "", "", &measure, {.processes = 2, .limit = seconds(120), .is_alone = true}};

}  // namespace

Result<std::vector<BenchRow>> run_bench(const Subject& subject) {
  PLEXUS_TRY(verdict, run_alone(subject, kBench));
  if (verdict.outcome != Outcome::kPass) {
    return wrong("the benchmark failed: {}", verdict.detail);
  }
  std::vector<BenchRow> rows;
  std::istringstream text(verdict.detail);
  BenchRow row{};
  while (text >> row.size_bytes >> row.latency_us_min >> row.latency_us_median >>
         row.bandwidth_gb_per_s) {
    rows.push_back(row);
  }
  return rows;
}

std::string format_bench(const std::vector<BenchRow>& rows) {
  std::string text =
      fmt::format("{:>10} {:>14} {:>14} {:>12}\n", "bytes", "min us", "median us", "GB/s");
  for (const BenchRow& row : rows) {
    const bool has_latency = row.latency_us_median > 0;
    text += fmt::format("{:>10} {:>14} {:>14} {:>12.3f}\n", row.size_bytes,
                        has_latency ? fmt::format("{:.2f}", row.latency_us_min) : "-",
                        has_latency ? fmt::format("{:.2f}", row.latency_us_median) : "-",
                        row.bandwidth_gb_per_s);
  }
  return text;
}

std::string format_bench_json(const std::string& library,
                              const Identity& identity,
                              const std::vector<BenchRow>& rows) {
  using Json = nlohmann::ordered_json;
  Json all = Json::array();
  for (const BenchRow& row : rows) {
    Json latency = nullptr;
    if (row.latency_us_median > 0) {
      latency = {{"min", row.latency_us_min}, {"median", row.latency_us_median}};
    }
    all.push_back({{"bytes", row.size_bytes},
                   {"latency_us", latency},
                   {"bandwidth_gb_per_s", row.bandwidth_gb_per_s}});
  }
  const Json report = {
      {"library", library}, {"abi", identity.abi}, {"name", identity.name}, {"rows", all}};
  return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace plexus::conformance
