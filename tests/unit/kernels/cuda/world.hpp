// SPDX-License-Identifier: Apache-2.0
// Ranks over Fifos in plain memory: some run the host executor, the others the device executor on
// host threads in place of thread blocks. Their results are compared bit by bit, and since any rank
// can be of either kind, so are the messages between them.
#pragma once

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "kernels/cuda/device_work.hpp"
#include "kernels/host/executor.hpp"
#include "kernels/program/algorithms.hpp"

namespace plexus::test {

/// Zeroed memory with the alignment that transports use.
class Bytes {
 public:
  explicit Bytes(size_t size_bytes) : memory_(new (kAlignment) std::byte[size_bytes + 1]) {
    std::memset(memory_.get(), 0, size_bytes + 1);
  }
  [[nodiscard]] std::byte* get() const { return memory_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{128};
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete[](memory, kAlignment); }
  };
  std::unique_ptr<std::byte[], Free> memory_;
};

/// The common parameters of all ranks of a world.
struct Call {
  std::vector<Program> programs;
  DataType type = DataType::kInt32;
  ReduceOp op{};
  Protocol protocol = Protocol::kSimple;
  Collective collective = Collective::kAllReduce;
  uint64_t count = 0;  // elements of a block
  uint32_t chunk_bytes = 256;
  uint32_t slot_bytes = 128;
};

class World;
struct WorldOptions {
  std::vector<bool> on_device;  // [nranks]
  uint32_t threads = 1;         // per block
  bool lines = true;            // connections have them
  bool by_address = false;      // device ranks pass addresses to device ranks
  uint64_t first_step = 0;      // initial step of all Fifos
  size_t shift_bytes = 0;       // offset of the user buffers from their alignment
  uint32_t inline_bytes = kInlineBytes;
  bool reads_pointers = true;  // device ranks can read the memory of device ranks
  bool in_turn = false;        // one block serves all device ranks
};

inline constexpr uint32_t kBorrowBytesMin = 64;

/// A table of a launch, or what messages carry, and where it is on a machine with a GPU.
struct Region {
  enum class Kind { kDevice, kPinned, kBytes, kLines };
  Kind kind;
  const void* begin;
  size_t size_bytes;
};

/// The programs of all ranks of an algorithm.
std::vector<Program> record_all(const Algorithm& algorithm,
                                int nranks,
                                int root = 0,
                                bool joins = false);
/// A sum by an algorithm of kernels/program/algorithms.hpp.
Call make_call(const char* algorithm, int nranks, uint64_t count, Protocol protocol);
/// Different inputs for each rank and seed; NaN and infinity are tested in elements_test.cpp.
void fill_inputs(World& world, DataType type, uint32_t seed);

Geometry geometry_of(const Call& call);

/// Whether ranks may write results to each other's outputs.
inline bool opens_output(const Call& call) {
  return call.collective == Collective::kAllReduce && !call.programs.front().divides_buffer;
}
/// Number of blocks of `count` elements in a rank's largest buffer.
size_t blocks_of(const Call& call);

class World {
 public:
  World(Call call, const WorldOptions& options);
  ~World();

  [[nodiscard]] size_t size() const { return ranks_.size(); }
  /// The input of a rank; as long as all blocks of the call.
  [[nodiscard]] std::byte* input(size_t rank);
  [[nodiscard]] size_t input_bytes() const { return blocks_bytes_; }
  [[nodiscard]] std::vector<std::byte> output(size_t rank) const;
  [[nodiscard]] DeviceWork& device_work(size_t rank);
  [[nodiscard]] DeviceControl& control(size_t rank);
  /// Works that have finished.
  [[nodiscard]] uint64_t done(size_t rank) const;
  /// No block uses the tables of the rank's launch any more.
  [[nodiscard]] bool has_left(size_t rank) const;
  /// Changes the call of `rank` to a different one.
  void set_hash(size_t rank, uint32_t hash);
  /// An empty call still has a loop if messages are exchanged.
  void set_loops(size_t rank, uint32_t loops);
  /// Makes input and output of every rank the same memory.
  void make_in_place();

  /// All ranks make the call `times` times, device ranks in one launch. True: all succeeded. A rank
  /// that fails ends all others, as with the engine.
  bool run(uint32_t times = 1);

  /// The same in parts, where all ranks are on the device and somebody else runs the blocks.
  std::vector<DeviceBlock> prepare(uint32_t times);
  [[nodiscard]] bool has_succeeded(uint32_t times) const;
  /// All that the blocks of prepare() use, but for themselves.
  [[nodiscard]] std::vector<Region> regions() const;

 private:
  /// Stops all ranks that wait.
  void abort();
  /// Aborts when a device rank has failed.
  void watch();
  struct Link;
  struct SendEnd;
  struct RecvEnd;
  struct Rank;
  Link& link(int from, int to);
  SendEnd make_send(int rank, int peer);
  RecvEnd make_recv(int rank, int peer);
  void connect(size_t index);
  void fill_host_work(Rank& rank);
  void fill_device_work(Rank& rank);
  void prepare_launch(Rank& rank, uint32_t times);
  std::vector<DeviceBlock> make_blocks();
  bool run_host(const std::vector<Rank*>& ranks, uint32_t times);

  Call call_;
  WorldOptions options_;
  size_t blocks_bytes_ = 0;
  std::atomic<bool> host_stop_{false};
  std::map<std::pair<int, int>, std::unique_ptr<Link>> links_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace plexus::test
