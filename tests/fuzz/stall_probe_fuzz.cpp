// SPDX-License-Identifier: Apache-2.0
// What a hostile or broken peer may send as a probe, a leave record, in an inquiry or about links
// between datacenters. Whatever is accepted can be encoded again and formatted as text.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/comm/link_agreement.hpp"
#include "core/stall/inquiry.hpp"
#include "core/stall/stall_probe.hpp"
#include "core/stall/verdict.hpp"

namespace plexus {
namespace {

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

/// As rank 0 and as another; the message may come twice, and calls go on.
void fuzz_link_agreement(std::string_view bytes) {
  for (const int rank : {0, 1}) {
    uint64_t calls = 7;
    LinkAgreement agreement(
        {.rank = rank, .nranks = 3, .datacenters = 4, .calls = [&calls] { return calls; }});
    for (int times = 0; times < 2; ++times) {
      if (const auto posts = agreement.take(1 - rank, bytes); posts.has_value()) {
        for (const Exchange::Posted& post : posts.value()) {
          require(post.peer != rank && post.peer >= 0 && post.peer < 3);
        }
      }
      (void)agreement.pass(calls++);
    }
    (void)agreement.leave();
  }
}

void fuzz(std::string_view bytes) {
  fuzz_link_agreement(bytes);
  if (const auto probe = decode_stall_probe(bytes); probe.has_value()) {
    require(!probe->hops.empty() && probe->index < probe->hops.size());
    require(encode(*probe).size() == bytes.size());
    require(!describe_circle(probe->hops).message().empty());
    for (const StallHop& hop : probe->hops) {
      (void)depends_on(hop.call, hop.rank, hop.peer);
    }
  }
  if (const auto record = decode_leave_record(bytes); record.has_value()) {
    require(encode(*record) == bytes);
  }
  constexpr int kRanks = 100;
  if (const auto message = decode_inquiry(bytes, kRanks); message.has_value()) {
    require(encode(*message).size() == bytes.size());
  }
  if (const auto summary = decode_summary(bytes, kRanks); summary.has_value()) {
    require(summary->classes.size() <= kClassesMax);
    require(decode_summary(encode(*summary), kRanks).has_value());
    const StallAsker asker{.group = 1,
                           .nranks = kRanks,
                           .status = {.activity = RankActivity::kWaiting},
                           .process_of = [](int /*rank*/) { return std::string("host:1"); }};
    require(!judge(asker, *summary).sentence.empty());
  }
}

}  // namespace
}  // namespace plexus

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plexus::fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
