// SPDX-License-Identifier: Apache-2.0
// Graphs: what a capture took down, and its launches.
#include <algorithm>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "integrations/cudart/call.hpp"
#include "integrations/cudart/graph_nodes.hpp"
#include "integrations/cudart/include/cuda_runtime_api.h"
#include "integrations/cudart/runtime.hpp"

namespace plexus::cudart {
namespace {

/// An instantiated graph. Launches of one run one after the other, as in CUDA.
class GraphExec {
 public:
  explicit GraphExec(std::shared_ptr<const GraphLog> log) : log_(std::move(log)) {}
  GraphExec(const GraphExec&) = delete;
  GraphExec& operator=(const GraphExec&) = delete;
  ~GraphExec() {
    for (cudaStream_t const lane : lanes_) {
      static_cast<void>(plexusStreamDestroy(lane));
    }
    for (plexusEvent_t const event : marks_) {
      static_cast<void>(plexusEventDestroy(event));
    }
  }

  cudaError_t prepare() {
    for (int lane = 1; lane < log_->lanes; ++lane) {
      cudaStream_t stream = nullptr;
      PLEXUS_CUDART_TRY(error_of(plexusStreamCreate(&stream)));
      lanes_.push_back(stream);
    }
    for (int mark = 0; mark <= log_->marks; ++mark) {  // the last one: the end of a launch
      plexusEvent_t event = nullptr;
      PLEXUS_CUDART_TRY(error_of(plexusEventCreate(&event)));
      marks_.push_back(event);
    }
    return cudaSuccess;
  }

  cudaError_t launch(cudaStream_t handle) {
    const std::lock_guard lock(mutex_);
    PLEXUS_CUDART_TRY(error_of(plexusStreamWaitEvent(handle, marks_.back())));
    for (const GraphOp& op : log_->ops) {
      cudaStream_t const stream =
          op.lane == 0 ? handle : lanes_.at(static_cast<size_t>(op.lane) - 1);
      plexusEvent_t const mark = marks_.at(static_cast<size_t>(op.mark));
      switch (op.kind) {
        case GraphOp::Kind::kWork:
          PLEXUS_CUDART_TRY(op.issue(stream));
          break;
        case GraphOp::Kind::kMark:
          PLEXUS_CUDART_TRY(error_of(plexusEventRecord(mark, stream)));
          break;
        case GraphOp::Kind::kWait:
          PLEXUS_CUDART_TRY(error_of(plexusStreamWaitEvent(stream, mark)));
          break;
      }
    }
    return error_of(plexusEventRecord(marks_.back(), handle));
  }

  void update(std::shared_ptr<const GraphLog> log) {
    const std::lock_guard lock(mutex_);
    log_ = std::move(log);
  }
  [[nodiscard]] std::shared_ptr<const GraphLog> log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<const GraphLog> log_;  // guarded by mutex_
  std::vector<cudaStream_t> lanes_;
  std::vector<plexusEvent_t> marks_;
};

/// Made by capture, or node by node.
struct Graph {
  std::shared_ptr<const GraphLog> log;
  std::vector<std::shared_ptr<GraphNode>> nodes{};
};

/// Threads: any.
class Graphs {
 public:
  static Graphs& instance() { return Immortal<Graphs>::instance(); }

  cudaGraph_t add(std::shared_ptr<const GraphLog> log) {
    auto graph = std::make_shared<Graph>(Graph{std::move(log)});
    const std::lock_guard lock(mutex_);
    const auto handle = reinterpret_cast<cudaGraph_t>(graph.get());
    graphs_.emplace(handle, std::move(graph));
    return handle;
  }
  cudaError_t find(cudaGraph_t graph, std::shared_ptr<Graph>* found) {
    return find_in(graphs_, graph, found, "graph");
  }
  cudaError_t find(cudaGraphExec_t exec, std::shared_ptr<GraphExec>* found) {
    return find_in(execs_, exec, found, "instantiated graph");
  }
  cudaError_t remove(cudaGraph_t graph) {
    std::shared_ptr<Graph> found;
    PLEXUS_CUDART_TRY(find(graph, &found));
    const std::lock_guard lock(mutex_);
    graphs_.erase(graph);
    return cudaSuccess;
  }
  cudaError_t instantiate(cudaGraph_t graph, cudaGraphExec_t* exec) {
    PLEXUS_CUDART_TRY(check_pointer(exec, "the address of the instantiated graph"));
    std::shared_ptr<Graph> found;
    PLEXUS_CUDART_TRY(find(graph, &found));
    std::shared_ptr<const GraphLog> log;
    PLEXUS_CUDART_TRY(find_log(*found, &log));
    auto made = std::make_shared<GraphExec>(std::move(log));
    PLEXUS_CUDART_TRY(made->prepare());
    const std::lock_guard lock(mutex_);
    *exec = reinterpret_cast<cudaGraphExec_t>(made.get());
    execs_.emplace(*exec, std::move(made));
    return cudaSuccess;
  }
  /// All that a graph does.
  cudaError_t find_log(const Graph& graph, std::shared_ptr<const GraphLog>* log) {
    const std::lock_guard lock(mutex_);
    *log = graph.log;
    if (graph.nodes.empty()) {
      return cudaSuccess;
    }
    const auto sorted = sort_nodes(graph.nodes);
    if (sorted.empty()) {
      return refuse(cudaErrorInvalidValue, "nodes of the graph wait for each other in a circle");
    }
    *log = std::make_shared<const GraphLog>(assemble(sorted));
    return cudaSuccess;
  }
  /// `after`: nodes of the same graph.
  cudaError_t add_node(cudaGraph_t graph,
                       const std::shared_ptr<GraphNode>& node,
                       std::span<const cudaGraphNode_t> after) {
    std::shared_ptr<Graph> found;
    PLEXUS_CUDART_TRY(find(graph, &found));
    if (!found->log->ops.empty()) {
      return refuse(cudaErrorNotSupported, "a graph of a capture gets no further nodes");
    }
    const std::lock_guard lock(mutex_);
    for (cudaGraphNode_t const each : after) {
      PLEXUS_CUDART_TRY(add_edge(*found, *node, each));
    }
    found->nodes.push_back(node);
    return cudaSuccess;
  }
  cudaError_t add_edges(cudaGraph_t graph,
                        std::span<const cudaGraphNode_t> from,
                        std::span<const cudaGraphNode_t> to) {
    std::shared_ptr<Graph> found;
    PLEXUS_CUDART_TRY(find(graph, &found));
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < to.size(); ++i) {
      GraphNode* const node = find_node(*found, to[i]);
      if (node == nullptr) {
        return refuse(cudaErrorInvalidValue, "{} is no node of the graph", fmt::ptr(to[i]));
      }
      PLEXUS_CUDART_TRY(add_edge(*found, *node, from[i]));
    }
    return cudaSuccess;
  }
  cudaError_t find_type(cudaGraphNode_t node, cudaGraphNodeType* type) {
    const std::lock_guard lock(mutex_);
    for (const auto& [handle, graph] : graphs_) {
      if (const GraphNode* const found = find_node(*graph, node); found != nullptr) {
        *type = found->type;
        return cudaSuccess;
      }
      for (const GraphOp& op : graph->log->ops) {
        if (static_cast<const void*>(&op) == static_cast<const void*>(node)) {
          *type = op.type;
          return cudaSuccess;
        }
      }
    }
    return refuse(cudaErrorInvalidValue, "{} is no node of a graph", fmt::ptr(node));
  }
  /// Launches that are under way end still.
  cudaError_t remove(cudaGraphExec_t exec) {
    std::shared_ptr<GraphExec> found;
    PLEXUS_CUDART_TRY(find(exec, &found));
    const std::lock_guard lock(mutex_);
    execs_.erase(exec);
    return cudaSuccess;
  }

 private:
  friend class Immortal<Graphs>;
  Graphs() = default;
  /// nullptr: it is none of the graph's.
  static GraphNode* find_node(const Graph& graph, cudaGraphNode_t node) {
    const auto at = std::find_if(graph.nodes.begin(), graph.nodes.end(), [node](const auto& each) {
      return static_cast<const void*>(each.get()) == static_cast<const void*>(node);
    });
    return at == graph.nodes.end() ? nullptr : at->get();
  }
  static cudaError_t add_edge(const Graph& graph, GraphNode& node, cudaGraphNode_t after) {
    const GraphNode* const found = find_node(graph, after);
    if (found == nullptr) {
      return refuse(cudaErrorInvalidValue, "{} is no node of the graph", fmt::ptr(after));
    }
    node.after.push_back(found);
    return cudaSuccess;
  }
  template <class Handle, class T>
  cudaError_t find_in(const std::unordered_map<Handle, std::shared_ptr<T>>& all,
                      Handle handle,
                      std::shared_ptr<T>* found,
                      const char* what) {
    const std::lock_guard lock(mutex_);
    const auto at = all.find(handle);
    if (at == all.end()) {
      return refuse(cudaErrorInvalidValue, "{} is no {}, or was destroyed", fmt::ptr(handle), what);
    }
    *found = at->second;
    return cudaSuccess;
  }

  std::mutex mutex_;
  std::unordered_map<cudaGraph_t, std::shared_ptr<Graph>> graphs_;         // guarded by mutex_
  std::unordered_map<cudaGraphExec_t, std::shared_ptr<GraphExec>> execs_;  // likewise
};

cudaError_t end_capture(cudaStream_t stream, cudaGraph_t* graph) {
  PLEXUS_CUDART_TRY(check_pointer(graph, "the address of the graph"));
  *graph = nullptr;
  std::shared_ptr<const GraphLog> log;
  PLEXUS_CUDART_TRY(Runtime::instance().streams.end_capture(stream, &log));
  *graph = Graphs::instance().add(std::move(log));
  return cudaSuccess;
}

}  // namespace

cudaError_t describe_capture(cudaStream_t stream,
                             cudaStreamCaptureStatus* status,
                             unsigned long long* id) {
  PLEXUS_CUDART_TRY(check_pointer(status, "the address of the status"));
  std::shared_ptr<Stream> found;
  PLEXUS_CUDART_TRY(Runtime::instance().streams.find(stream, &found));
  const auto capture = Runtime::instance().streams.capture_of(*found);
  *status = cudaStreamCaptureStatusNone;
  if (capture != nullptr) {
    *status =
        capture->is_invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    if (id != nullptr) {
      *id = capture->id;
    }
  }
  return cudaSuccess;
}

namespace {

cudaError_t launch(cudaGraphExec_t exec, cudaStream_t stream) {
  std::shared_ptr<GraphExec> found;
  PLEXUS_CUDART_TRY(Graphs::instance().find(exec, &found));
  return Runtime::instance().streams.enqueue(
      stream, cudaGraphNodeTypeGraph,
      [found](cudaStream_t handle) { return found->launch(handle); });
}

size_t count_work(const GraphLog& log) {
  return static_cast<size_t>(std::count_if(log.ops.begin(), log.ops.end(), [](const GraphOp& op) {
    return op.kind == GraphOp::Kind::kWork;
  }));
}

cudaError_t list_nodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  PLEXUS_CUDART_TRY(check_pointer(count, "the address of the count"));
  std::shared_ptr<Graph> found;
  PLEXUS_CUDART_TRY(Graphs::instance().find(graph, &found));
  const size_t all = found->nodes.empty() ? count_work(*found->log) : found->nodes.size();
  if (nodes == nullptr) {
    *count = all;
    return cudaSuccess;
  }
  size_t next = 0;
  for (const auto& node : found->nodes) {
    if (next < *count) {
      nodes[next++] = reinterpret_cast<cudaGraphNode_t>(node.get());
    }
  }
  for (const GraphOp& op : found->log->ops) {
    if (op.kind == GraphOp::Kind::kWork && next < *count) {
      // NOLINTNEXTLINE(*-const-cast): a handle
      nodes[next++] = reinterpret_cast<cudaGraphNode_t>(const_cast<GraphOp*>(&op));
    }
  }
  std::fill(nodes + next, nodes + *count, nullptr);
  *count = std::min(*count, all);
  return cudaSuccess;
}

/// Another capture of the same steps takes the place of the first.
cudaError_t update(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info) {
  std::shared_ptr<GraphExec> found;
  std::shared_ptr<Graph> from;
  PLEXUS_CUDART_TRY(Graphs::instance().find(exec, &found));
  PLEXUS_CUDART_TRY(Graphs::instance().find(graph, &from));
  const auto log = found->log();
  std::shared_ptr<const GraphLog> other;
  PLEXUS_CUDART_TRY(Graphs::instance().find_log(*from, &other));
  const auto is_same = [](const GraphOp& a, const GraphOp& b) {
    return a.kind == b.kind && a.lane == b.lane && a.mark == b.mark && a.type == b.type;
  };
  const bool fits =
      std::equal(log->ops.begin(), log->ops.end(), other->ops.begin(), other->ops.end(), is_same);
  if (info != nullptr) {
    *info = {.result = fits ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged,
             .errorNode = nullptr,
             .errorFromNode = nullptr};
  }
  if (!fits) {
    return refuse(cudaErrorGraphExecUpdateFailure, "the graphs differ in their steps");
  }
  found->update(std::move(other));
  return cudaSuccess;
}

/// Adds a node that does what `body` puts on a stream, which is captured for that.
template <class Body>
cudaError_t add_node(cudaGraphNode_t* node,
                     cudaGraph_t graph,
                     std::span<const cudaGraphNode_t> after,
                     cudaGraphNodeType type,
                     const Body& body) {
  PLEXUS_CUDART_TRY(check_pointer(node, "the address of the node"));
  Streams& streams = Runtime::instance().streams;
  cudaStream_t stream = nullptr;
  PLEXUS_CUDART_TRY(streams.create(cudaStreamNonBlocking, 0, &stream));
  PLEXUS_CUDART_TRY(streams.begin_capture(stream, cudaStreamCaptureModeRelaxed));
  const cudaError_t put = body(stream);
  auto made = std::make_shared<GraphNode>();
  made->type = type;
  const cudaError_t ended = streams.end_capture(stream, &made->log);
  PLEXUS_CUDART_TRY(streams.destroy(stream));
  PLEXUS_CUDART_TRY(put);
  PLEXUS_CUDART_TRY(ended);
  PLEXUS_CUDART_TRY(Graphs::instance().add_node(graph, made, after));
  *node = reinterpret_cast<cudaGraphNode_t>(made.get());
  return cudaSuccess;
}

cudaError_t fill(const cudaMemsetParams& wish, cudaStream_t stream) {
  const unsigned byte = wish.value & 0xffU;
  const bool is_one_byte = wish.elementSize == 1 ||
                           (wish.elementSize == 2 && wish.value == byte * 0x101U) ||
                           (wish.elementSize == 4 && wish.value == byte * 0x1010101U);
  if (!is_one_byte) {
    return refuse(cudaErrorNotSupported,
                  "memset nodes set bytes that are all the same: the value is {:#x}, of {} bytes",
                  wish.value, wish.elementSize);
  }
  const size_t width = wish.width * wish.elementSize;
  return cudaMemset2DAsync(wish.dst, wish.height > 1 ? wish.pitch : width, static_cast<int>(byte),
                           width, wish.height, stream);
}

}  // namespace

cudaError_t add_dependencies(cudaGraph_t graph,
                             const cudaGraphNode_t* from,
                             const cudaGraphNode_t* to,
                             size_t count) {
  PLEXUS_CUDART_TRY(count == 0 ? cudaSuccess : check_pointer(from, "the list of nodes"));
  PLEXUS_CUDART_TRY(count == 0 ? cudaSuccess : check_pointer(to, "the list of nodes"));
  return Graphs::instance().add_edges(graph, {from, count}, {to, count});
}

}  // namespace plexus::cudart

using namespace plexus::cudart;  // NOLINT(google-build-using-namespace): as all of this file

PLEXUS_CUDART cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call("cudaStreamBeginCapture",
              [&] { return Runtime::instance().streams.begin_capture(stream, mode); });
}
PLEXUS_CUDART cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return call("cudaStreamEndCapture", [&] { return end_capture(stream, graph); });
}
PLEXUS_CUDART cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                                cudaStreamCaptureStatus* status) {
  return call("cudaStreamIsCapturing", [&] { return describe_capture(stream, status, nullptr); });
}
PLEXUS_CUDART cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return call("cudaThreadExchangeStreamCaptureMode", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(mode, "mode"));
    // No call is unsafe during a capture here, so the mode forbids none.
    thread_local cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
    std::swap(current, *mode);
    return cudaSuccess;
  });
}
PLEXUS_CUDART cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned /*flags*/) {
  return call("cudaGraphCreate", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(graph, "the address of the graph"));
    *graph = Graphs::instance().add(std::make_shared<const GraphLog>());
    return cudaSuccess;
  });
}
PLEXUS_CUDART cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call("cudaGraphDestroy", [&] { return Graphs::instance().remove(graph); });
}
PLEXUS_CUDART cudaError_t cudaGraphGetNodes(cudaGraph_t graph,
                                            cudaGraphNode_t* nodes,
                                            size_t* count) {
  return call("cudaGraphGetNodes", [&] { return list_nodes(graph, nodes, count); });
}
PLEXUS_CUDART cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec,
                                               cudaGraph_t graph,
                                               unsigned long long /*flags*/) {
  return call("cudaGraphInstantiate", [&] { return Graphs::instance().instantiate(graph, exec); });
}
PLEXUS_CUDART cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec,
                                                        cudaGraph_t graph,
                                                        unsigned long long /*flags*/) {
  return call("cudaGraphInstantiateWithFlags",
              [&] { return Graphs::instance().instantiate(graph, exec); });
}
PLEXUS_CUDART cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return call("cudaGraphLaunch", [&] { return launch(exec, stream); });
}
PLEXUS_CUDART cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  return call("cudaGraphUpload", [&]() -> cudaError_t {
    std::shared_ptr<GraphExec> found;
    PLEXUS_CUDART_TRY(Graphs::instance().find(exec, &found));
    return Runtime::instance().streams.check(stream);
  });
}
PLEXUS_CUDART cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return call("cudaGraphExecDestroy", [&] { return Graphs::instance().remove(exec); });
}
PLEXUS_CUDART cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec,
                                              cudaGraph_t graph,
                                              cudaGraphExecUpdateResultInfo* info) {
  return call("cudaGraphExecUpdate", [&] { return update(exec, graph, info); });
}

// ---- node by node ----

// NOLINTBEGIN(readability-function-size): the numbers of parameters are CUDA's
PLEXUS_CUDART cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node,
                                                 cudaGraph_t graph,
                                                 const cudaGraphNode_t* after,
                                                 size_t count,
                                                 const cudaKernelNodeParams* wish) {
  return call("cudaGraphAddKernelNode", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(wish, "the parameters"));
    PLEXUS_CUDART_TRY(check_pointer(wish->kernelParams, "the list of the kernel's arguments"));
    return add_node(node, graph, {after, count}, cudaGraphNodeTypeKernel, [&](cudaStream_t stream) {
      return cudaLaunchKernel(wish->func, wish->gridDim, wish->blockDim, wish->kernelParams,
                              wish->sharedMemBytes, stream);
    });
  });
}
PLEXUS_CUDART cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node,
                                                 cudaGraph_t graph,
                                                 const cudaGraphNode_t* after,
                                                 size_t count,
                                                 const cudaMemcpy3DParms* wish) {
  return call("cudaGraphAddMemcpyNode", [&] {
    return add_node(node, graph, {after, count}, cudaGraphNodeTypeMemcpy,
                    [&](cudaStream_t stream) { return cudaMemcpy3DAsync(wish, stream); });
  });
}
PLEXUS_CUDART cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node,
                                                   cudaGraph_t graph,
                                                   const cudaGraphNode_t* after,
                                                   size_t count,
                                                   void* to,
                                                   const void* from,
                                                   size_t bytes,
                                                   cudaMemcpyKind kind) {
  return call("cudaGraphAddMemcpyNode1D", [&] {
    return add_node(node, graph, {after, count}, cudaGraphNodeTypeMemcpy, [&](cudaStream_t stream) {
      return cudaMemcpyAsync(to, from, bytes, kind, stream);
    });
  });
}
PLEXUS_CUDART cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node,
                                                 cudaGraph_t graph,
                                                 const cudaGraphNode_t* after,
                                                 size_t count,
                                                 const cudaMemsetParams* wish) {
  return call("cudaGraphAddMemsetNode", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(wish, "the parameters"));
    return add_node(node, graph, {after, count}, cudaGraphNodeTypeMemset,
                    [&](cudaStream_t stream) { return fill(*wish, stream); });
  });
}
PLEXUS_CUDART cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node,
                                               cudaGraph_t graph,
                                               const cudaGraphNode_t* after,
                                               size_t count,
                                               const cudaHostNodeParams* wish) {
  return call("cudaGraphAddHostNode", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(wish, "the parameters"));
    return add_node(node, graph, {after, count}, cudaGraphNodeTypeHost, [&](cudaStream_t stream) {
      return cudaLaunchHostFunc(stream, wish->fn, wish->userData);
    });
  });
}
PLEXUS_CUDART cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node,
                                                cudaGraph_t graph,
                                                const cudaGraphNode_t* after,
                                                size_t count) {
  return call("cudaGraphAddEmptyNode", [&] {
    return add_node(node, graph, {after, count}, cudaGraphNodeTypeEmpty,
                    [](cudaStream_t) { return cudaSuccess; });
  });
}
PLEXUS_CUDART cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node,
                                                     cudaGraph_t graph,
                                                     const cudaGraphNode_t* after,
                                                     size_t count,
                                                     cudaGraph_t child) {
  return call("cudaGraphAddChildGraphNode", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(node, "the address of the node"));
    std::shared_ptr<Graph> found;
    PLEXUS_CUDART_TRY(Graphs::instance().find(child, &found));
    auto made = std::make_shared<GraphNode>();
    made->type = cudaGraphNodeTypeGraph;
    PLEXUS_CUDART_TRY(Graphs::instance().find_log(*found, &made->log));
    PLEXUS_CUDART_TRY(Graphs::instance().add_node(graph, made, {after, count}));
    *node = reinterpret_cast<cudaGraphNode_t>(made.get());
    return cudaSuccess;
  });
}
// NOLINTEND(readability-function-size)
PLEXUS_CUDART cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return call("cudaGraphNodeGetType", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(type, "the address of the type"));
    return Graphs::instance().find_type(node, type);
  });
}
