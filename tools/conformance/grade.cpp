// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/grade.hpp"

#include <algorithm>
#include <array>

namespace plexus::conformance {
namespace {

constexpr Grade kWeak = Grade::kWeak;
constexpr Grade kBeyond = Grade::kBeyond;

constexpr auto kRows = std::to_array<GradeRow>({
    // The surrounding process: NCCL has no requirements, other code in the process may have.
    {"file.load_process", kWeak},
    {"file.load_threads", kBeyond},
    {"file.load_descriptors", kBeyond},
    {"file.load_silent", kBeyond},
    {"file.text_relocations", kWeak},
    {"file.stack", kWeak},
    {"file.run_path", kWeak},
    {"init.process", kWeak},
    {"init.leaves", kWeak},
    {"init.memory", kWeak},
    {"init.threads", kBeyond},    // NCCL holds a process-wide lock
    {"device.threads", kBeyond},  // NCCL holds a process-wide lock
    {"fork.between", kWeak},
    {"fork.child", kWeak},
    {"fork.exec", kWeak},
    // Values that NCCL reads leniently or not at all.
    {"device.pci_path", kBeyond},
    {"device.speed", kBeyond},  // NCCL takes 0 or less for 10 Gbit/s
    {"device.latency", kBeyond},
    {"device.rails", kBeyond},
    {"device.names_differ", kBeyond},
    {"vendor.size", kBeyond},
    {"vendor.bootstrap", kBeyond},  // an option of NCCL's, off by default
    {"vendor.unused", kBeyond},     // maxCollBytes is one of a network that reduces
    // Connections.
    {"accept.several", kBeyond},  // one accept per listen
    {"accept.no_wait", kWeak},    // NCCL connects first; a peer that never comes blocks all
    {"connect.nobody", kWeak},
    {"connect.leaves", kWeak},
    {"connect.fails", kWeak},
    {"time.connect", kWeak},
    {"time.peers", kBeyond},  // a slow job is right
    // Messages and requests: NCCL has 8 in flight per connection, tests the oldest, and passes an
    // address for every buffer and an array for sizes to every test.
    {"message.empty_first", kBeyond},
    {"message.empty_null", kBeyond},
    {"message.read_only", kBeyond},
    {"order.tags_reversed", kBeyond},
    {"order.tags_repeated", kBeyond},
    {"order.tags_extreme", kBeyond},
    {"order.tags_bits", kBeyond},  // they come in another order
    {"request.full", kBeyond},
    {"request.flood", kBeyond},
    {"request.newest_first", kBeyond},
    {"request.any_order", kBeyond},
    {"request.sizes", kBeyond},  // ignored for host memory
    {"request.sizes_null", kBeyond},
    {"request.sizes_done", kBeyond},
    {"request.too_long", kWeak},
    {"group.too_long", kWeak},
    // Ends that do not occur in a healthy job.
    {"close.unused", kWeak},
    {"close.receives", kWeak},
    {"close.send", kWeak},
    {"close.amid", kWeak},
    {"close.time", kWeak},
    {"close.others", kWeak},
    {"close.leaves", kWeak},
    {"close.abort_leaves", kWeak},
    {"close.memory", kWeak},
    {"close.exit_open", kWeak},
    {"fault.receiver", kWeak},
    {"fault.sender", kWeak},
    {"fault.amid", kWeak},
    {"fault.context", kWeak},
    {"fault.sender_closes", kWeak},
    {"fault.receiver_closes", kWeak},
    {"fault.others", kWeak},
    {"fault.leaves", kWeak},
    {"fault.connector", kWeak},
    {"fault.listener", kWeak},
    {"fault.descriptors", kWeak},
    {"fault.signals", kWeak},
    {"log.voice", kBeyond},
    {"log.calm", kBeyond},
    {"log.lines", kBeyond},
    {"log.messages", kBeyond},
    // Tuners and profilers.
    {"tuner.many", kWeak},
    {"tuner.process", kWeak},
    {"tuner.silent", kBeyond},
    {"costs.quick", kWeak},
    {"profiler.many", kWeak},
    {"profiler.process", kWeak},
    {"profiler.quick", kWeak},
    {"profiler.silent", kBeyond},
    {"profiler.exit_open", kWeak},
    {"event.open", kWeak},
    // Networks that reduce.
    {"collnet.no_device", kBeyond},
    {"collnet.support_unknown", kBeyond},
    {"collnet.no_wait", kWeak},
    {"collnet.many", kWeak},
    {"collnet.process", kWeak},
    {"reduce.again", kBeyond},
    {"reduce.close", kWeak},
    {"reduce.differ", kWeak},
    {"reduce.death", kWeak},
});

}  // namespace

const char* grade_words(Grade grade) {
  switch (grade) {
    case Grade::kBreaksJobs:
      return "breaks jobs";
    case Grade::kWeak:
      return "weak under faults";
    case Grade::kBeyond:
      return "beyond NCCL's contract";
  }
  return "?";
}

const char* grade_verdict(Grade grade) {
  switch (grade) {
    case Grade::kBreaksJobs:
      return "fail";
    case Grade::kWeak:
      return "weak";
    case Grade::kBeyond:
      return "beyond";
  }
  return "?";
}

Grade grade_under_nccl(std::string_view id) {
  const auto row =
      std::find_if(kRows.begin(), kRows.end(), [&](const GradeRow& each) { return each.id == id; });
  return row == kRows.end() ? Grade::kBreaksJobs : row->grade;
}

std::span<const GradeRow> grade_rows() { return kRows; }

}  // namespace plexus::conformance
