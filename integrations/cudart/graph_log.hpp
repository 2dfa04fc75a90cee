// SPDX-License-Identifier: Apache-2.0
// What a capture takes down: pieces of work, and the marks by which its streams wait for each
// other, in the order in which they were issued. A launch issues them again, each stream of the
// capture being a lane, of which lane 0 is the stream that the graph is launched on.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "integrations/cudart/include/driver_types.h"

namespace plexus::cudart {

struct Stream;

/// Puts a piece of work on a stream of plexusStreamCreate.
using Issue = std::function<cudaError_t(cudaStream_t handle)>;

inline constexpr int kNoMark = -1;

struct GraphOp {
  enum class Kind { kWork, kMark, kWait };
  Kind kind = Kind::kWork;
  int lane = 0;
  int mark = 0;  // kMark: that is reached here; kWait: that the lane waits for
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;  // kWork
  Issue issue{};                                    // kWork
};

struct GraphLog {
  std::vector<GraphOp> ops;
  int lanes = 1;
  int marks = 0;
};

struct Capture {
  uint64_t id = 0;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::shared_ptr<Stream> origin;
  std::vector<std::shared_ptr<Stream>> joined;  // by lane - 1
  GraphLog log;
  std::atomic<bool> is_invalid{false};
};

/// Edges of a graph that is built node by node.
cudaError_t add_dependencies(cudaGraph_t graph,
                             const cudaGraphNode_t* from,
                             const cudaGraphNode_t* to,
                             size_t count);

/// Does lane 0 wait, in the end, for all that is on the others?
bool is_joined(const GraphLog& log);

}  // namespace plexus::cudart
