// SPDX-License-Identifier: Apache-2.0
#include "tools/sim/step_costs.hpp"

#include "kernels/layout/fifo.hpp"

namespace plexus {

StepCosts::StepCosts(const SimNetwork& network, const SimCores& cores)
    : network_(network), job_(network.job), cores_(cores), shares_cores_(job_.shares_cores()) {}

const SimLink& StepCosts::link(const SimLaneState& lane, int peer) const {
  return job_.link(network_.connections[lane.peers()[peer]].kind);
}

uint64_t StepCosts::most_under_way(const SimLaneState& lane, int peer) const {
  const double small_bytes = link(lane, peer).work.small_bytes;
  return small_bytes > 0 && static_cast<double>(lane.bytes(job_)) <= small_bytes ? kHeaders
                                                                                 : kSlots;
}

double StepCosts::early_us(const SimLaneState& lane) const {
  const Step& step = lane.current();
  return step.sends == 0 ? 0 : link(lane, step.receives).work.early_us;
}

double StepCosts::duration_us(const SimLaneState& lane) const {
  const auto bytes = static_cast<double>(lane.bytes(job_));
  const Step& step = lane.current();
  const SimCosts& costs = job_.costs;
  double all_us = work_us(lane, bytes);
  for (int i = 0; i < step.receives + step.sends; ++i) {
    all_us += link(lane, i).message_us;
  }
  const int operands =
      step.receives + (step.source != Buffer::kNone ? 1 : 0) + (step.accumulates ? 1 : 0);
  if (operands > 1) {
    all_us += (operands - 1) * bytes * costs.reduce_us_per_byte;
  } else if (step.receives == 0 && step.target != Buffer::kNone) {
    all_us += bytes * costs.copy_us_per_byte;
  }
  return all_us;
}

/// What was measured of messages as those of the step (SimWork).
double StepCosts::work_us(const SimLaneState& lane, double bytes) const {
  const Step& step = lane.current();
  const bool combines = step.source != Buffer::kNone;
  const bool apart = step.target != Buffer::kNone && step.target != step.source;
  const auto ends_of = [&](const SimWork& work) -> const SimEnds& {
    return job_.is_one_way ? work.one_way : work.both_ways;
  };
  const auto time_of = [&](const SimCurve& curve, const SimWork& work) {
    return curve.of_message(bytes, static_cast<double>(job_.node_bytes), work.slot_bytes,
                            lane.geometry->loops == 1);
  };
  double all_us = 0;
  for (int i = 0; i < step.receives; ++i) {
    const SimWork& work = link(lane, i).work;
    const SimEnds& ends = ends_of(work);
    all_us += one_core_part(lane, i, bytes) * time_of(!combines ? ends.recv
                                                      : apart   ? ends.combine_apart
                                                                : ends.combine,
                                                      work);
    if (shares_cores_) {
      all_us += bytes * work.crowd_us_per_byte.at(static_cast<double>(job_.node_bytes), 0);
    }
  }
  for (int i = step.receives; i < step.receives + step.sends; ++i) {
    const SimWork& work = link(lane, i).work;
    // what arrives and has no target is made in the first slot that it leaves by
    const bool is_made_there =
        i == step.receives && step.receives > 0 && step.target == Buffer::kNone;
    const SimCurve& send = ends_of(work).send;
    all_us += one_core_part(lane, i, bytes) * (is_made_there ? send.at(0) : time_of(send, work));
  }
  const SimWork& own = job_.costs.near.work;
  if (step.receives == 0 && step.source != Buffer::kNone && apart) {
    all_us += time_of(own.copy, own);
  } else if (step.accumulates) {
    all_us += time_of(ends_of(own).combine, own);
  }
  return all_us;
}

double StepCosts::one_core_part(const SimLaneState& lane, int peer, double bytes) const {
  const SimConnection& connection = network_.connections[lane.peers()[peer]];
  return shares_cores_ && cores_.share(connection.source, connection.target)
             ? link(lane, peer).work.one_core.at(bytes, 1)
             : 1;
}

}  // namespace plexus
