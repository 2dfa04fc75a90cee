// SPDX-License-Identifier: Apache-2.0
// What messages cost the processors of two ranks, for the simulator (tools/sim/work.hpp), from
// times of whole calls: pure, but for measure_messages(). docs/simulator.md, "Calibration", has the
// formulas.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/base/result.hpp"
#include "tools/cli/tune/stage.hpp"

namespace plexus::tune {

/// Times in us of calls of 2 ranks, by the bytes of a message: what each rank sends.
struct MessageTimes {
  std::map<size_t, double> broadcast;     // `ring`, in place: messages without an answer
  std::map<size_t, double> reduce;        // `ring`, in place: the same, combined
  std::map<size_t, double> reduce_out;    // out of place
  std::map<size_t, double> one_core;      // broadcast by ranks of one core, up to a slot
  std::map<size_t, double> exchange;      // all-gather `ring`, in place: one in each direction
  std::map<size_t, double> exchange_out;  // out of place: and a copy
  std::map<size_t, double> sum;           // all-reduce `doubling`, in place
  std::map<size_t, double> sum_out;
  // All-reduces in place: by `ring` of one chunk of kChunkBytes, which goes to the other rank and
  // back, and by `halving` of two, one exchange after the other.
  double ring_one_chunk = 0;
  double halving_two_chunks = 0;
};
inline constexpr size_t kChunkBytes = 64;

/// A call of more ranks than cores.
struct SharedCall {
  std::string algorithm;  // of the table (kernels/program)
  int nranks = 2;
  size_t size_bytes = 0;
  bool over_sockets = false;
  int calls = 1;  // of which the time is the mean
  double us = 0;
};

struct MessageLink {
  std::string name;  // host or net
  size_t slot_bytes = 0;
  MessageTimes times;
};

struct MessageHost {
  int cores = 1;
  std::vector<SharedCall> shared = {};      // all-reduces of kSmallBytes
  std::vector<SharedCall> shared_net = {};  // the same over sockets
  std::vector<SharedCall> rooted = {};      // broadcasts of kSmallBytes
  std::vector<SharedCall> crowd = {};       // all-to-alls, by size
};

/// The "messages" of a calibration file. `links`: the first is that of the host.
nlohmann::ordered_json format_messages(const MessageHost& host,
                                       const std::vector<MessageLink>& links);

struct MeasuredMessages {
  MessageHost host = {};                 // more ranks than cores
  std::vector<MessageTimes> links = {};  // between processes of the host, then over sockets
  int moved = 0;                         // runs that were measured between far cores only
  int passes = 0;                        // in which everything was measured
};

/// Medians of `passes`, beside which the host had not moved the cores (steady.hpp). When the stage
/// is over, of what was measured: without links and calls that were not. kTimeout: not even those
/// between processes of the host were.
Result<MeasuredMessages> measure_messages(bool with_net, int cores, int passes, Stage& stage);

}  // namespace plexus::tune
