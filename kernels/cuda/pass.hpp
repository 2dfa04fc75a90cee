// SPDX-License-Identifier: Apache-2.0
// A pass: all threads of a block read the operands of a slice once, combine them in order, and
// write the value to all of its targets: user memory, slots, lines.
//
// Memory is moved in 16-byte vectors if all addresses have the same offset modulo 16. The rest
// before and after the vectors, unaligned memory, and lines are moved in units of 8 bytes (a unit
// is two words of LL or a 15th of a line of LL128). Each unit belongs to one thread, so nothing is
// staged.
#pragma once

#include "kernels/cuda/device_work.hpp"
#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/memory.hpp"

namespace plexus {

/// Layout of the bytes at an address.
enum class Carrier : uint32_t { kMemory, kLL, kLL128 };

struct Operand {
  const std::byte* bytes;
  Carrier carrier;
  uint32_t flag;  // expected in lines
};
struct Target {
  std::byte* bytes;  // nullptr: this target receives an address instead
  Carrier carrier;
  uint32_t flag;
};

/// The task of a block for one slice, in memory that its threads share.
struct Pass {
  static constexpr uint32_t kUnscaled = ~0U;
  Operand operands[kDevicePeersMax + 1];
  Target targets[kDevicePeersMax + 1];  // own memory, then one per peer
  DeviceControl* control;
  uint64_t scalar_bits;
  uint32_t operand_count;
  uint32_t target_count;
  uint32_t scaled;   // index of the operand that is multiplied first, or kUnscaled
  uint32_t divisor;  // 0: the value is not divided
  uint32_t hash;     // the call's: part of LL128's last word
  uint32_t size_bytes;
  mutable uint32_t taken;  // bytes of a long slice that warps have taken, see move_bytes()
};

PLEXUS_DEVICE inline bool is_stopped(const DeviceControl& control) {
  return load_relaxed(&control.stop) != DeviceStop::kGoOn;
}

/// Polls until `ready()` is true. False: the work was stopped.
template <class Ready>
PLEXUS_DEVICE bool wait_until(const DeviceControl& control, Ready ready) {
  for (uint32_t polls = 1; !ready(); ++polls) {
    if (polls % kPollsPerLook == 0 && is_stopped(control)) {
      return false;
    }
    pause_between_polls(polls);
  }
  return true;
}

PLEXUS_DEVICE inline uint64_t line_word(uint32_t low, uint32_t flag) {
  return uint64_t{flag} << 32 | low;  // NOLINT(readability-magic-numbers): the upper half
}

/// Waits for the word at `place` that carries `flag`; 0, and `stopped` set, when the work was
/// stopped.
template <Carrier carrier>
PLEXUS_DEVICE uint64_t
await_word(const DeviceControl& control, const std::byte* place, uint32_t flag, bool& stopped) {
  const auto* const word = reinterpret_cast<const uint64_t*>(place);
  uint64_t value = 0;
  const bool arrived = wait_until(control, [&] {
    value = carrier == Carrier::kLL ? load_dependent(word) : load_acquire(word);
    return value >> 32 == flag;  // NOLINT(readability-magic-numbers): the upper half
  });
  stopped = stopped || !arrived;
  return arrived ? value : 0;
}

inline constexpr uint32_t kUnitsOfLine = kDataBytesOfLineLL128 / kUnitBytes;

/// Loads `size_bytes` (at most a unit) from `place`, in accesses as wide as the alignment allows.
PLEXUS_DEVICE inline uint64_t load_bytes(const std::byte* place, uint32_t size_bytes) {
  const auto address = reinterpret_cast<uintptr_t>(place);
  if ((address | size_bytes) % kUnitBytes == 0) {
    return *reinterpret_cast<const uint64_t*>(place);
  }
  uint64_t unit = 0;
  if ((address | size_bytes) % sizeof(uint32_t) == 0) {
    for (uint32_t at = 0; at < size_bytes; at += sizeof(uint32_t)) {
      unit |= uint64_t{*reinterpret_cast<const uint32_t*>(place + at)} << (at * 8);
    }
    return unit;
  }
  for (uint32_t at = 0; at < size_bytes; ++at) {
    unit |= uint64_t{std::to_integer<uint8_t>(place[at])} << (at * 8);
  }
  return unit;
}
PLEXUS_DEVICE inline void store_bytes(std::byte* place, uint64_t unit, uint32_t size_bytes) {
  const auto address = reinterpret_cast<uintptr_t>(place);
  if ((address | size_bytes) % kUnitBytes == 0) {
    *reinterpret_cast<uint64_t*>(place) = unit;
    return;
  }
  if ((address | size_bytes) % sizeof(uint32_t) == 0) {
    for (uint32_t at = 0; at < size_bytes; at += sizeof(uint32_t)) {
      *reinterpret_cast<uint32_t*>(place + at) = static_cast<uint32_t>(unit >> (at * 8));
    }
    return;
  }
  for (uint32_t at = 0; at < size_bytes; ++at) {
    place[at] = static_cast<std::byte>(unit >> (at * 8));
  }
}

/// Loads the `size_bytes` bytes of the unit at `offset`. Not inlined, like store_unit: it is the
/// same for all types and operations.
PLEXUS_DEVICE_NOINLINE inline uint64_t load_unit(const DeviceControl& control,
                                                 const Operand& from,
                                                 uint32_t offset,
                                                 uint32_t size_bytes,
                                                 bool& stopped) {
  if (from.carrier == Carrier::kMemory) {
    return load_bytes(from.bytes + offset, size_bytes);
  }
  const uint32_t unit = offset / kUnitBytes;
  if (from.carrier == Carrier::kLL) {
    const std::byte* const words = from.bytes + sizeof(LineLL) * (1 + 2 * uint64_t{unit});
    const auto low =
        static_cast<uint32_t>(await_word<Carrier::kLL>(control, words, from.flag, stopped));
    const uint64_t high =
        size_bytes > sizeof(uint32_t)
            ? await_word<Carrier::kLL>(control, words + sizeof(LineLL), from.flag, stopped)
            : 0;
    return high << 32 | low;  // NOLINT(readability-magic-numbers): the upper half
  }
  // Each thread acquires the line's last word itself, after which it may read the line.
  const std::byte* const line = from.bytes + sizeof(LineLL128) * uint64_t{unit / kUnitsOfLine};
  await_word<Carrier::kLL128>(control, line + kDataBytesOfLineLL128, from.flag, stopped);
  return *reinterpret_cast<const uint64_t*>(line + unit % kUnitsOfLine * kUnitBytes);
}

PLEXUS_DEVICE_NOINLINE inline void store_unit(const Target& to,
                                              uint32_t offset,
                                              uint64_t value,
                                              uint32_t size_bytes) {
  if (to.carrier == Carrier::kMemory) {
    store_bytes(to.bytes + offset, value, size_bytes);
    return;
  }
  const uint32_t unit = offset / kUnitBytes;
  if (to.carrier == Carrier::kLL) {
    auto* const words = reinterpret_cast<uint64_t*>(to.bytes) + 1 + 2 * uint64_t{unit};
    store_dependent(words, line_word(static_cast<uint32_t>(value), to.flag));
    if (size_bytes > sizeof(uint32_t)) {
      store_dependent(words + 1, line_word(static_cast<uint32_t>(value >> 32), to.flag));
    }
    return;
  }
  std::byte* const line = to.bytes + sizeof(LineLL128) * uint64_t{unit / kUnitsOfLine};
  *reinterpret_cast<uint64_t*>(line + unit % kUnitsOfLine * kUnitBytes) = value;
}

/// The value of one unit of the pass; `load(i)` gives that of operand i.
template <class Ops, class Load>
PLEXUS_DEVICE uint64_t combine_unit(const Pass& pass, Load load) {
  uint64_t value = 0;
  for (uint32_t i = 0; i < pass.operand_count; ++i) {
    uint64_t next = load(i);
    if constexpr (Ops::kIsExtended) {
      next = i == pass.scaled ? Ops::scale(next, pass.scalar_bits) : next;
    }
    value = i == 0 ? next : Ops::combine(value, next);
  }
  if constexpr (Ops::kIsExtended) {
    value = pass.divisor != 0 ? Ops::divide(value, pass.divisor) : value;
  }
  return value;
}

/// Moves bytes [0, head) and [tail, size) unit by unit. False: the work was stopped.
template <class Ops, class Block>
PLEXUS_DEVICE bool pass_units(const Block& block, const Pass& pass, uint32_t head, uint32_t tail) {
  bool stopped = false;
  const uint32_t stride = block.threads() * kUnitBytes;
  // Units are numbered from 0 in the head and continue in the tail.
  const uint32_t head_rounded = (head + kUnitBytes - 1) & ~(kUnitBytes - 1);
  const uint32_t end = head_rounded + (pass.size_bytes - tail);
  for (uint32_t number = block.thread() * kUnitBytes; number < end; number += stride) {
    const bool in_head = number < head;
    const uint32_t at = in_head ? number : number - head_rounded + tail;
    const uint32_t left = (in_head ? head : pass.size_bytes) - at;
    const uint32_t size_bytes = left < kUnitBytes ? left : kUnitBytes;
    const uint64_t value = combine_unit<Ops>(pass, [&](uint32_t i) {
      return load_unit(*pass.control, pass.operands[i], at, size_bytes, stopped);
    });
    for (uint32_t i = 0; i < pass.target_count; ++i) {
      if (pass.targets[i].bytes != nullptr) {
        store_unit(pass.targets[i], at, value, size_bytes);
      }
    }
  }
  return !stopped;
}

/// Vectors of an operand in registers: one at `at`, the others a stride apart, those before `end`.
template <uint32_t count>
struct Vectors {
  Vector v[count];

  PLEXUS_DEVICE void load(const std::byte* from, uint32_t at, uint32_t end, uint32_t stride) {
    PLEXUS_UNROLL
    for (uint32_t i = 0; i < count; ++i) {
      v[i] = at + i * stride < end
                 ? *reinterpret_cast<const Vector*>(from + at + i * uint64_t{stride})
                 : Vector{};
    }
  }
  PLEXUS_DEVICE void store(std::byte* to, uint32_t at, uint32_t end, uint32_t stride) const {
    PLEXUS_UNROLL
    for (uint32_t i = 0; i < count; ++i) {
      if (at + i * stride < end) {
        *reinterpret_cast<Vector*>(to + at + i * uint64_t{stride}) = v[i];
      }
    }
  }
  /// Replaces each unit by function(unit, the other's).
  template <class Function>
  PLEXUS_DEVICE void for_units(const Vectors& other, Function function) {
    PLEXUS_UNROLL
    for (uint32_t i = 0; i < count; ++i) {
      v[i] = {function(v[i].low, other.v[i].low), function(v[i].high, other.v[i].high)};
    }
  }
};

/// One round of vectors: several in flight per thread, a stride apart, in [at, end). While an
/// operand is combined the next one is on its way, in registers of its own.
template <class Ops>
PLEXUS_DEVICE void pass_vectors(const Pass& pass, uint32_t at, uint32_t end, uint32_t stride) {
  using Held = Vectors<Ops::kVectorsInFlight>;
  const auto load = [&](Held& to, uint32_t i) { to.load(pass.operands[i].bytes, at, end, stride); };
  const auto scale = [&](Held& operand, uint32_t i) {
    if constexpr (Ops::kIsExtended) {
      if (i == pass.scaled) {
        operand.for_units(operand,
                          [&](uint64_t a, uint64_t) { return Ops::scale(a, pass.scalar_bits); });
      }
    }
  };
  Held value;
  load(value, 0);
  if constexpr (Ops::kCombines) {
    const auto combine = [&](Held& next, uint32_t i) {
      scale(next, i);
      value.for_units(next, [](uint64_t a, uint64_t b) { return Ops::combine(a, b); });
    };
    const uint32_t count = pass.operand_count;
    Held odd;
    Held even;
    if (count > 1) {
      load(odd, 1);
    }
    scale(value, 0);
    for (uint32_t i = 1; i < count; i += 2) {
      if (i + 1 < count) {
        load(even, i + 1);
      }
      combine(odd, i);
      if (i + 1 < count) {
        if (i + 2 < count) {
          load(odd, i + 2);
        }
        combine(even, i + 1);
      }
    }
  }
  if constexpr (Ops::kIsExtended) {
    if (pass.divisor != 0) {
      value.for_units(value, [&](uint64_t a, uint64_t) { return Ops::divide(a, pass.divisor); });
    }
  }
  for (uint32_t i = 0; i < pass.target_count; ++i) {
    if (pass.targets[i].bytes != nullptr) {
      value.store(pass.targets[i].bytes, at, end, stride);
    }
  }
}

/// Number of bytes before the first vector; size_bytes: there is no vector.
PLEXUS_DEVICE inline uint32_t bytes_before_vectors(const Pass& pass) {
  constexpr uintptr_t kMask = sizeof(Vector) - 1;
  const auto first = reinterpret_cast<uintptr_t>(pass.operands[0].bytes);
  uintptr_t differ = 0;
  for (uint32_t i = 0; i < pass.operand_count; ++i) {
    differ |= reinterpret_cast<uintptr_t>(pass.operands[i].bytes) ^ first;
    differ |= pass.operands[i].carrier == Carrier::kMemory ? 0 : 1;
  }
  for (uint32_t i = 0; i < pass.target_count; ++i) {
    if (pass.targets[i].bytes != nullptr) {
      differ |= reinterpret_cast<uintptr_t>(pass.targets[i].bytes) ^ first;
      differ |= pass.targets[i].carrier == Carrier::kMemory ? 0 : 1;
    }
  }
  const auto head = static_cast<uint32_t>(-first & kMask);
  return (differ & kMask) != 0 || head > pass.size_bytes ? pass.size_bytes : head;
}

/// Moves the whole slice; false: the work was stopped. Not inlined: one body per type and
/// operation, for all verbs.
template <class Ops, class Block>
PLEXUS_DEVICE_NOINLINE bool move_bytes(const Block& block, const Pass& pass) {
  constexpr uint32_t kVectorsInFlight = Ops::kVectorsInFlight;
  constexpr uint32_t kMask = sizeof(Vector) - 1;
  const uint32_t head = bytes_before_vectors(pass);
  const uint32_t end = head + ((pass.size_bytes - head) & ~kMask);
  // Warps are not equally fast: of a long slice each takes a piece when it is through with the one
  // before, of a short one they have equal shares.
  constexpr uint32_t kRounds = 4;
  const bool is_long =
      end - head >= kRounds * kVectorsInFlight * block.threads() * uint32_t{sizeof(Vector)};
  const uint32_t number = is_long ? block.lane() : block.thread();
  const uint32_t stride = (is_long ? block.lanes() : block.threads()) * uint32_t{sizeof(Vector)};
  const uint32_t piece = kVectorsInFlight * stride;
  uint32_t at = head + (is_long ? block.share(block.take(&pass.taken, piece)) : 0);
  while (at < end) {
    const uint32_t next = is_long ? block.take(&pass.taken, piece) : at + piece;
    pass_vectors<Ops>(pass, at + number * uint32_t{sizeof(Vector)}, end, stride);
    at = is_long ? head + block.share(next) : next;
  }
  return pass_units<Ops>(block, pass, head, end);
}

/// Unsigned type with the same bits for sums and products as the signed one.
constexpr DataType without_sign(DataType type) {
  switch (type) {
    case DataType::kInt8:
      return DataType::kUint8;
    case DataType::kInt32:
      return DataType::kUint32;
    case DataType::kInt64:
      return DataType::kUint64;
    default:
      return type;
  }
}

/// Whether the value of the pass is its one operand.
PLEXUS_DEVICE inline bool copies(const Pass& pass) {
  return pass.operand_count == 1 && pass.scaled == Pass::kUnscaled && pass.divisor == 0;
}

/// What find_pass() finds: a whole pass...
template <class Block>
struct Move {
  using Function = bool (*)(const Block&, const Pass&);
  template <class Ops>
  PLEXUS_DEVICE static Function of() {
    return &move_bytes<Ops, Block>;
  }
};
/// ... or the value of one unit, whose operands are `stride` units apart.
template <class Ops>
PLEXUS_DEVICE_NOINLINE uint64_t combine_units(const uint64_t* first,
                                              uint32_t stride,
                                              const Pass& pass) {
  return combine_unit<Ops>(pass, [&](uint32_t i) { return first[uint64_t{i} * stride]; });
}
struct Combine {
  using Function = uint64_t (*)(const uint64_t*, uint32_t, const Pass&);
  template <class Ops>
  PLEXUS_DEVICE static Function of() {
    return &combine_units<Ops>;
  }
};

template <class Found, DataType type>
PLEXUS_DEVICE typename Found::Function find_pass_of(const Pass& pass, ReduceKind kind) {
  constexpr DataType kUnsigned = without_sign(type);
  if (pass.scaled != Pass::kUnscaled || pass.divisor != 0) {
    return Found::template of<ExtendedSum<type>>();
  }
  switch (kind) {
    case ReduceKind::kProd:
      return Found::template of<Combining<kUnsigned, ReduceKind::kProd>>();
    case ReduceKind::kMax:
      return Found::template of<Combining<type, ReduceKind::kMax>>();
    case ReduceKind::kMin:
      return Found::template of<Combining<type, ReduceKind::kMin>>();
    case ReduceKind::kSum:
    case ReduceKind::kNone:
      break;
  }
  return Found::template of<Combining<kUnsigned, ReduceKind::kSum>>();
}

/// Not for passes that copy.
template <class Found>
PLEXUS_DEVICE typename Found::Function find_pass(const Pass& pass, DataType type, ReduceKind kind) {
  switch (type) {
    case DataType::kInt8:
      return find_pass_of<Found, DataType::kInt8>(pass, kind);
    case DataType::kUint8:
      return find_pass_of<Found, DataType::kUint8>(pass, kind);
    case DataType::kInt32:
      return find_pass_of<Found, DataType::kInt32>(pass, kind);
    case DataType::kUint32:
      return find_pass_of<Found, DataType::kUint32>(pass, kind);
    case DataType::kInt64:
      return find_pass_of<Found, DataType::kInt64>(pass, kind);
    case DataType::kUint64:
      return find_pass_of<Found, DataType::kUint64>(pass, kind);
    case DataType::kFloat16:
      return find_pass_of<Found, DataType::kFloat16>(pass, kind);
    case DataType::kFloat32:
      return find_pass_of<Found, DataType::kFloat32>(pass, kind);
    case DataType::kFloat64:
      return find_pass_of<Found, DataType::kFloat64>(pass, kind);
    case DataType::kBfloat16:
      return find_pass_of<Found, DataType::kBfloat16>(pass, kind);
    case DataType::kFloat8e4m3:
      return find_pass_of<Found, DataType::kFloat8e4m3>(pass, kind);
    case DataType::kFloat8e5m2:
      return find_pass_of<Found, DataType::kFloat8e5m2>(pass, kind);
  }
  return nullptr;
}

/// A value that its sender has stored in its place.
PLEXUS_DEVICE inline bool is_in_place(const Pass& pass) {
  return pass.operand_count == 1 && pass.target_count == 1 &&
         pass.operands[0].carrier == Carrier::kMemory &&
         pass.operands[0].bytes == pass.targets[0].bytes && pass.divisor == 0 &&
         pass.scaled == Pass::kUnscaled;
}

/// A value that is where it was, and whose address went to all peers.
PLEXUS_DEVICE inline bool stores_nothing(const Pass& pass) {
  if (!copies(pass) || pass.operands[0].carrier != Carrier::kMemory) {
    return false;
  }
  for (uint32_t i = 0; i < pass.target_count; ++i) {
    if (pass.targets[i].bytes != nullptr) {
      return false;
    }
  }
  return true;
}

/// Runs the pass; false: the work was stopped. The body is called through a pointer: if the
/// compiler saw the callee, it would give the kernel one stack frame for all bodies together.
template <class Block>
PLEXUS_DEVICE bool run_pass(const Block& block, const Pass& pass, DataType type, ReduceKind kind) {
  // Warps without work in a small message skip the call.
  if (block.thread() * kUnitBytes >= pass.size_bytes + kUnitBytes || is_in_place(pass) ||
      stores_nothing(pass)) {
    return true;
  }
  const auto move =
      copies(pass) ? Move<Block>::template of<Copying>() : find_pass<Move<Block>>(pass, type, kind);
  return move(block, pass);
}

}  // namespace plexus
