// SPDX-License-Identifier: Apache-2.0
// What messages cost the processors of their ranks, as `plexus tune` measures it between two
// processes of a host (docs/simulator.md, "Calibration").
#pragma once

#include <vector>

namespace plexus {

/// Time of a call by its bytes: up to the slot's size that of one message, above it that of several
/// messages one after the other, which overlap, and whose buffers leave the caches one by one.
struct SimCurve {
  std::vector<double> bytes;  // ascending
  std::vector<double> us;     // as many
  // Bytes of all buffers of the node, by those of the call, when it was measured; and how many
  // connections had slots.
  double node_bytes_per_byte = 1;
  double connections = 0;

  /// Of a call of so many bytes; interpolated, and by the byte beyond. 0 without points.
  [[nodiscard]] double at(double call_bytes) const;
  /// Of a message of at most a slot, of a call whose node has buffers and slots of so many bytes.
  /// `is_one`: it is the only one of its connection; others follow each other, as those of a call
  /// of several.
  [[nodiscard]] double of_message(double message_bytes,
                                  double node_bytes,
                                  double slot_bytes,
                                  bool is_one) const;
};

/// Numbers by bytes.
struct SimTable {
  std::vector<double> bytes;  // ascending
  std::vector<double> numbers;

  /// Interpolated; beyond the ends as there. `otherwise` without points.
  [[nodiscard]] double at(double x, double otherwise) const;
};

/// A call, and the two ends of its messages.
struct SimEnds {
  double call_us = 0;      // at its end, whatever it is
  SimCurve send;           // into a slot
  SimCurve recv;           // out of a slot
  SimCurve combine;        // out of a slot, onto the rank's own values
  SimCurve combine_apart;  // the same, into another buffer
};

struct SimWork {
  double slot_bytes = 0;   // 0: nothing was measured, work costs nothing
  double small_bytes = 0;  // messages of up to so many take no slot: kHeaders may be on their way
  double early_us = 0;     // of a step that sends, after its message has left
  SimEnds both_ways;       // of calls in which ranks send about as much as they receive
  SimEnds one_way;         // of rooted calls
  SimCurve copy;           // from a buffer to another
  // Where ranks share cores. Of a message between ranks of one core, whose caches have it then: the
  // part of these costs, by its bytes.
  SimTable one_core;
  // What each byte of a message takes longer, by those of the node's buffers and slots: the caches
  // hold less of each.
  SimTable crowd_us_per_byte;
};

/// The costs of a host (tools/cli/sim/calibration.hpp reads them).
struct SimCalibration {
  int cores = 1;
  double turn_us = 0;
  double net_turn_us = 0;  // of ranks that use sockets, at which they look
  SimWork host;            // between processes that share memory
  SimWork net;             // over sockets; slot_bytes is 0 where it was not measured
};

}  // namespace plexus
