// SPDX-License-Identifier: Apache-2.0
// `RecordingPrims`: the Prims type that records a Program instead of moving data.
//
//   RecordingPrims prims(0, 2, 1);  // rank 0 of 2, one chunk
//   prims.send(At{Buffer::kInput, 0}, 1);
//   const Program program = std::move(prims).take();
//   return program.lanes[0].steps.size();  // 1
#pragma once

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/program/program.hpp"

namespace plexus {

class RecordingPrims {
 public:
  RecordingPrims(int rank, int nranks, int chunks, bool joins = false, bool sketches = false)
      : joins_(joins), sketches_(joins && sketches) {
    program_.rank = rank;
    program_.nranks = nranks;
    program_.chunks = chunks;
    program_.lanes.resize(1);
  }

  bool lane(int index) {
    lane_ = static_cast<size_t>(index);
    if (program_.lanes.size() <= lane_) {
      program_.lanes.resize(lane_ + 1);
    }
    return true;
  }

  void after(int lane) {
    const auto& steps = program_.lanes[static_cast<size_t>(lane)].steps;
    after_ = {.lane = lane, .step = static_cast<int>(steps.size()) - 1};
  }

  [[nodiscard]] bool joins() const { return joins_; }
  /// The bytes of a message of several chunks are copied to where they lie one behind the other.
  template <class Body>
  void message(const Body& body) {
    const size_t first = program_.lanes[lane_].steps.size();
    sketched_from_ = sketches_ ? first : kNowhere;
    body();
    sketched_from_ = kNowhere;
    std::vector<Step>& steps = program_.lanes[lane_].steps;
    for (size_t at = first; joins_ && at + 1 < steps.size(); ++at) {
      steps[at].with_next = true;
      steps[at].by_address = steps[at + 1].by_address = false;
    }
  }

  template <class To = OnePeer>
  void send(At source, To to, ByAddress by_address = ByAddress::kYes) {
    note_block(source);
    send(source.buffer, source.chunk, to, by_address);
  }
  template <class From = OnePeer>
  void recv(From from, At target) {
    note_block(target);
    add({.target = target.buffer, .target_chunk = target.chunk}, from, kNobody);
  }
  template <class From = OnePeer>
  void recv_reduce_copy(From from, At source, At target, Complete complete) {
    note_block(source);
    note_block(target);
    add({.source = source.buffer,
         .target = target.buffer,
         .completes = complete == Complete::kYes,
         .source_chunk = source.chunk,
         .target_chunk = target.chunk},
        from, kNobody);
  }

  template <class To = OnePeer>
  void send(Buffer source, int chunk, To to, ByAddress by_address = ByAddress::kYes) {
    add({.source = source, .by_address = by_address == ByAddress::kYes, .source_chunk = chunk},
        kNobody, to);
  }
  template <class From = OnePeer>
  void recv(From from, Buffer target, int chunk, Complete complete = Complete::kNo) {
    add({.target = target, .completes = complete == Complete::kYes, .target_chunk = chunk}, from,
        kNobody);
  }
  void copy(Buffer source, Buffer target, int chunk, Complete complete = Complete::kNo) {
    add({.source = source,
         .target = target,
         .completes = complete == Complete::kYes,
         .source_chunk = chunk,
         .target_chunk = chunk},
        kNobody, kNobody);
  }
  template <class To = OnePeer>
  void copy_send(Buffer source, Buffer target, int chunk, To to) {
    add({.source = source, .target = target, .source_chunk = chunk, .target_chunk = chunk}, kNobody,
        to);
  }
  template <class From = OnePeer, class To = OnePeer>
  void recv_send(From from, To to) {
    add({}, from, to);
  }
  template <class From = OnePeer, class To = OnePeer>
  void recv_copy_send(
      From from, Buffer target, int chunk, To to, Complete complete = Complete::kNo) {
    add({.target = target, .completes = complete == Complete::kYes, .target_chunk = chunk}, from,
        to);
  }
  template <class From = OnePeer, class To = OnePeer>
  void recv_reduce_send(From from, Buffer source, int chunk, To to) {
    add({.source = source, .source_chunk = chunk}, from, to);
  }
  template <class From = OnePeer>
  void recv_reduce_copy(From from, Buffer source, Buffer target, int chunk, Complete complete) {
    add({.source = source,
         .target = target,
         .completes = complete == Complete::kYes,
         .source_chunk = chunk,
         .target_chunk = chunk},
        from, kNobody);
  }
  template <class From = OnePeer, class To = OnePeer>
  void recv_reduce_copy_send(
      From from, Buffer source, Buffer target, int chunk, To to, Complete complete) {
    add({.source = source,
         .target = target,
         .completes = complete == Complete::kYes,
         .source_chunk = chunk,
         .target_chunk = chunk},
        from, to);
  }

  [[nodiscard]] Program take() && { return std::move(program_); }

 private:
  struct Nobody {
    [[nodiscard]] static int size() { return 0; }
    int operator[](int) const { return -1; }
    [[nodiscard]] static int own_position() { return 0; }
  };
  static constexpr Nobody kNobody{};

  /// A plain rank as a peer list of one.
  static OnePeer as_list(int rank) { return OnePeer(rank); }
  template <class List>
  static const List& as_list(const List& list) {
    return list;
  }

  void note_block(const At& at) {
    if (at.buffer != Buffer::kScratch || at.block < 0) {
      return;
    }
    std::vector<int>& blocks = program_.scratch_blocks;
    const auto index = static_cast<size_t>(at.chunk);
    blocks.resize(std::max(blocks.size(), index + 1), -1);
    blocks[index] = at.block;
  }

  template <class From, class To>
  void add(Step step, const From& from, const To& to) {
    for (const At at : {At{step.source, step.source_chunk}, At{step.target, step.target_chunk}}) {
      if (at.buffer == Buffer::kScratch) {
        program_.scratch_chunks = std::max(program_.scratch_chunks, at.chunk + 1);
      }
    }
    std::vector<Step>& steps = program_.lanes[lane_].steps;
    if (steps.size() > sketched_from_) {
      ++steps.back().chunks;
      return;
    }
    const auto& sources = as_list(from);
    const auto& targets = as_list(to);
    step.peers_first = static_cast<int>(program_.peers.size());
    step.receives = sources.size();
    step.sends = targets.size();
    step.own_position = sources.own_position();
    step.after = std::exchange(after_, {});
    for (int i = 0; i < sources.size(); ++i) {
      program_.peers.push_back(sources[i]);
    }
    for (int i = 0; i < targets.size(); ++i) {
      program_.peers.push_back(targets[i]);
    }
    steps.push_back(step);
  }

  static constexpr size_t kNowhere = std::numeric_limits<size_t>::max();

  Program program_;
  bool joins_;
  bool sketches_;
  size_t sketched_from_ = kNowhere;  // the step that stands for the message being recorded
  size_t lane_ = 0;
  After after_;  // condition for the next verb
};

}  // namespace plexus
