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

/// What each byte of a message takes longer where ranks share cores: their caches hold less of
/// each.
struct SimCrowd {
  std::vector<double> node_bytes;  // of buffers and slots, ascending
  std::vector<double> us_per_byte;

  /// Interpolated; beyond the ends as there. 0 without points.
  [[nodiscard]] double at(double bytes) const;
};

/// The two ends of messages.
struct SimEnds {
  SimCurve send;           // into a slot
  SimCurve recv;           // out of a slot
  SimCurve combine;        // out of a slot, onto the rank's own values
  SimCurve combine_apart;  // the same, into another buffer
};

struct SimWork {
  double slot_bytes = 0;   // 0: nothing was measured, work costs nothing
  double small_bytes = 0;  // messages of up to so many take no slot: kHeaders may be on their way
  double call_us = 0;      // at the end of a call, whatever it is
  double early_us = 0;     // of a step that sends, after its message has left
  SimEnds both_ways;       // of calls in which ranks send about as much as they receive
  SimEnds one_way;         // of rooted calls
  SimCurve copy;           // from a buffer to another
  SimCrowd crowd;
};

/// The costs of a host (tools/cli/sim/calibration.hpp reads them).
struct SimCalibration {
  int cores = 1;
  double turn_us = 0;
  SimWork host;  // between processes that share memory
  SimWork net;   // over sockets; slot_bytes is 0 where it was not measured
};

}  // namespace plexus
