// SPDX-License-Identifier: Apache-2.0
// The collectives as the tests call them, with integers whose results are exact, and their results.
#pragma once

#include <plexus.h>
#include <vector>

#include "core/device/device_runtime.hpp"
#include "kernels/layout/collective.hpp"

namespace plexus::testing_device {

inline constexpr int kRoot = 1;

/// A small integer that differs by rank and index.
inline int32_t value_of(int rank, size_t index) {
  return static_cast<int32_t>((index * 7 + static_cast<size_t>(rank) * 3) % 11) + 1;
}

/// An out-of-place collective with one block of `count` elements in each buffer, or one per rank.
struct Shape {
  const char* name;
  Collective collective;
  bool many_in;
  bool many_out;
  ncclResult_t (*call)(
      const int32_t* in, int32_t* out, size_t count, ncclComm_t comm, DeviceStream stream);
  /// Element i of block b of rank r's output.
  int32_t (*expected)(int nranks, int rank, size_t block, size_t i, size_t count);
  bool root_only;

  [[nodiscard]] size_t in_count(size_t count, size_t nranks) const {
    return many_in ? count * nranks : count;
  }
  [[nodiscard]] size_t out_count(size_t count, size_t nranks) const {
    return many_out ? count * nranks : count;
  }
  [[nodiscard]] std::vector<int32_t> expected_output(int nranks, int rank, size_t count) const {
    std::vector<int32_t> values;
    values.reserve(out_count(count, static_cast<size_t>(nranks)));
    for (size_t block = 0; block < (many_out ? static_cast<size_t>(nranks) : 1); ++block) {
      for (size_t i = 0; i < count; ++i) {
        values.push_back(expected(nranks, rank, block, i, count));
      }
    }
    return values;
  }
};
inline const Shape kShapes[] = {
    {"all_reduce", Collective::kAllReduce, false, false,
     [](const int32_t* in, int32_t* out, size_t count, ncclComm_t comm, DeviceStream stream) {
       return ncclAllReduce(in, out, count, ncclInt32, ncclSum, comm, stream);
     },
     [](int nranks, int, size_t, size_t i, size_t) {
       int32_t sum = 0;
       for (int rank = 0; rank < nranks; ++rank) {
         sum += value_of(rank, i);
       }
       return sum;
     },
     false},
    {"broadcast", Collective::kBroadcast, false, false,
     [](const int32_t* in, int32_t* out, size_t count, ncclComm_t comm, DeviceStream stream) {
       return ncclBroadcast(in, out, count, ncclInt32, kRoot, comm, stream);
     },
     [](int, int, size_t, size_t i, size_t) { return value_of(kRoot, i); }, false},
    {"reduce", Collective::kReduce, false, false,
     [](const int32_t* in, int32_t* out, size_t count, ncclComm_t comm, DeviceStream stream) {
       return ncclReduce(in, out, count, ncclInt32, ncclMax, kRoot, comm, stream);
     },
     [](int nranks, int, size_t, size_t i, size_t) {
       int32_t most = 0;
       for (int rank = 0; rank < nranks; ++rank) {
         most = std::max(most, value_of(rank, i));
       }
       return most;
     },
     true},
    {"all_gather", Collective::kAllGather, false, true,
     [](const int32_t* in, int32_t* out, size_t count, ncclComm_t comm, DeviceStream stream) {
       return ncclAllGather(in, out, count, ncclInt32, comm, stream);
     },
     [](int, int, size_t block, size_t i, size_t) { return value_of(static_cast<int>(block), i); },
     false},
    {"reduce_scatter", Collective::kReduceScatter, true, false,
     [](const int32_t* in, int32_t* out, size_t count, ncclComm_t comm, DeviceStream stream) {
       return ncclReduceScatter(in, out, count, ncclInt32, ncclSum, comm, stream);
     },
     [](int nranks, int rank, size_t, size_t i, size_t count) {
       int32_t sum = 0;
       for (int other = 0; other < nranks; ++other) {
         sum += value_of(other, static_cast<size_t>(rank) * count + i);
       }
       return sum;
     },
     false},
    {"alltoall", Collective::kAllToAll, true, true,
     [](const int32_t* in, int32_t* out, size_t count, ncclComm_t comm, DeviceStream stream) {
       return ncclAlltoAll(in, out, count, ncclInt32, comm, stream);
     },
     [](int, int rank, size_t block, size_t i, size_t count) {
       return value_of(static_cast<int>(block), static_cast<size_t>(rank) * count + i);
     },
     false},
    {"gather", Collective::kGather, false, true,
     [](const int32_t* in, int32_t* out, size_t count, ncclComm_t comm, DeviceStream stream) {
       return ncclGather(in, out, count, ncclInt32, kRoot, comm, stream);
     },
     [](int, int, size_t block, size_t i, size_t) { return value_of(static_cast<int>(block), i); },
     true},
    {"scatter", Collective::kScatter, true, false,
     [](const int32_t* in, int32_t* out, size_t count, ncclComm_t comm, DeviceStream stream) {
       return ncclScatter(in, out, count, ncclInt32, kRoot, comm, stream);
     },
     [](int, int rank, size_t, size_t i, size_t count) {
       return value_of(kRoot, static_cast<size_t>(rank) * count + i);
     },
     false},
};

/// nullptr: sends and receives, which only work in pairs.
inline const Shape* find_shape(Collective collective) {
  for (const Shape& shape : kShapes) {
    if (shape.collective == collective) {
      return &shape;
    }
  }
  return nullptr;
}

}  // namespace plexus::testing_device
