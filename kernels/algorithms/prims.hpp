// SPDX-License-Identifier: Apache-2.0
// The vocabulary of algorithms: buffers, peer lists, and the verbs of every `Prims` type.
//
// A `Prims` type has these members (P is an int or a peer list; B a Buffer; c a chunk index):
//   bool lane(int index)                      the verbs that follow belong to lane `index`;
//                                             false: this caller does not run that lane
//   after(int lane)                           the next verb waits until all verbs recorded so far
//                                             in lane `lane` are done
//   message(body)                             verbs of body(), all with the same peers, may move
//                                             their chunks in one message
//   joins()                                   whether they do; else each verb has its own message
//   send(B source, c, P to, ByAddress)        send a local chunk
//   recv(P from, B target, c, Complete = kNo) store what arrives
//   copy(B source, B target, c)               local copy
//   copy_send(B source, B target, c, P to)
//   recv_send(P from, P to)                   forward without storing
//   recv_copy_send(P from, B target, c, P to, Complete = kNo)
//   recv_reduce_send(P from, B source, c, P to)
//   recv_reduce_copy(P from, B source, B target, c, Complete)
//   recv_reduce_copy_send(P from, B source, B target, c, P to, Complete)
// `At` names a chunk whose index differs between source and target, or that is in scratch memory:
// send(At{b, c}, to, ByAddress), recv(from, At{b, c}), recv_reduce_copy(from, At source, At target,
// Complete). Scratch memory belongs to one lane, keeps nothing from loop to loop, and is never sent
// by address. A reduction over several peers combines in the order of the peer list, with the local
// source at the position that `own_position(P)` gives: the order is part of the algorithm and
// independent of arrival. `RecordingPrims` (kernels/program) writes a Program, which the executors
// replay.
#pragma once

#include <cstdint>

#include "kernels/layout/macros.hpp"

namespace plexus {

enum class Buffer : uint8_t { kNone, kInput, kOutput, kScratch };

/// Whether the result of the verb's reduction is complete (contains every rank's contribution).
enum class Complete : uint8_t { kNo, kYes };

/// Whether the chunk's address may be sent instead of its bytes. kNo if the algorithm may overwrite
/// the chunk before it can know that the receiver has read it.
enum class ByAddress : uint8_t { kNo, kYes };

/// One peer. Implicit, so that verbs accept a plain rank.
struct OnePeer {
  // NOLINTNEXTLINE(google-explicit-constructor): a rank is a peer list of one
  PLEXUS_HOST_DEVICE constexpr OnePeer(int rank) : rank_(rank) {}
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int size() const { return 1; }
  PLEXUS_HOST_DEVICE constexpr int operator[](int) const { return rank_; }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int own_position() const { return 0; }

 private:
  int rank_;
};

/// Calls `use(i)` for i from 0 to `count` - 1, whose verbs may share a message.
template <class Prims, class Use>
PLEXUS_HOST_DEVICE void message_of(Prims& prims, int count, const Use& use) {
  prims.message([&] {
    for (int i = 0; i < count; ++i) {
      use(i);
    }
  });
}

/// A chunk in a buffer. `block`: of a chunk in scratch memory, the rank whose block it holds (or
/// sums), in a collective whose ranks may have counts of their own; -1: none may.
struct At {
  Buffer buffer;
  int chunk;
  int block = -1;
};

/// One peer, and which of the two comes first in a reduction, so that both sides of an exchange
/// combine in the same order.
struct Partner {
  int rank;
  bool comes_first;
  [[nodiscard]] PLEXUS_HOST_DEVICE static constexpr int size() { return 1; }
  PLEXUS_HOST_DEVICE constexpr int operator[](int /*index*/) const { return rank; }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int own_position() const {
    return comes_first ? 1 : 0;
  }
};

/// All ranks but `self` in rank order. The own contribution has its place in that order, so that
/// every rank combines in the same order and gets the same bits.
struct EveryoneElse {
  int self;
  int nranks;
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int size() const { return nranks - 1; }
  PLEXUS_HOST_DEVICE constexpr int operator[](int index) const {
    return index < self ? index : index + 1;
  }
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int own_position() const { return self; }
};

/// All ranks but `self`, from the next one round: to send to, so that not all send to rank 0 first.
struct EveryoneAfter {
  int self;
  int nranks;
  [[nodiscard]] PLEXUS_HOST_DEVICE constexpr int size() const { return nranks - 1; }
  PLEXUS_HOST_DEVICE constexpr int operator[](int index) const {
    const int rank = self + 1 + index;
    return rank < nranks ? rank : rank - nranks;
  }
};

}  // namespace plexus
