// SPDX-License-Identifier: Apache-2.0
// Memory of the user that CUDA ranks in other processes of the host read in place. A rank offers an
// allocation to a peer when a call first sends to it from there; the peer maps it (CUDA IPC; of
// pieces by their descriptors) in a thread that may wait, once one of its calls has seen the offer,
// and answers with the address that it got; from then on the sender's kernels hand out addresses in
// place of bytes. Nobody waits for an answer: until it is there, and when a peer
// cannot map the memory, bytes go through slots, which is each sender's choice slot by slot.
//
// What peers may map: ranges that the user registered (ncclCommRegister, windows), until they are
// deregistered; and buffers of a captured graph, as long as the communicator lives. A graph has no
// later call, so its capture waits for the answers, for a bounded time.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "core/control/exchange.hpp"
#include "core/device/device_watch.hpp"
#include "core/transport/memory/mapping_message.hpp"
#include "core/transport/memory/offered_pieces.hpp"
#include "kernels/layout/fifo.hpp"

namespace plexus {

/// Threads: any.
class PeerMappedMemory final : private DeviceWatch::Subject {
 public:
  struct Options {
    int rank = 0;
    Exchange* exchange = nullptr;
    DeviceRuntime* runtime = nullptr;
    int device = -1;               // of this rank
    DeviceWatch* watch = nullptr;  // maps and unmaps
    std::vector<int> peers;        // whose kernels can read this rank's device
  };
  explicit PeerMappedMemory(Options options);
  ~PeerMappedMemory() override;
  PeerMappedMemory(const PeerMappedMemory&) = delete;
  PeerMappedMemory& operator=(const PeerMappedMemory&) = delete;

  /// Peers may map it from now on. Memory that cannot be is left alone, with a line in the log.
  void add(const void* address, size_t size_bytes);
  /// No more: no call that uses it is under way.
  void remove(const void* address);

  /// Has mapped what peers offer, and takes their answers. Never blocks.
  Result<void> serve();
  /// What to add to addresses of [address, address + size) so that `peer` can use them; kNotMapped:
  /// not possible (yet). Offers what was not offered.
  Result<uint64_t> map_for_peer(int peer, const void* address, size_t size_bytes, bool in_graph);

  /// A buffer of a graph, and who reads it.
  struct GraphBuffer {
    int peer;
    const void* address;
    size_t size_bytes;
  };
  /// Offers all of them, and tells the readers that this was all. `senders`: peers that offer to
  /// this rank in turn.
  Result<void> begin_graph(std::span<const GraphBuffer> buffers, std::span<const int> senders);
  /// Has everybody answered, and has this rank seen what it is to map? Serves. Asked again and
  /// again.
  Result<bool> graph_agreed();
  /// After the last graph_agreed(), whatever it said.
  void end_graph();

 private:
  struct Reader {
    uint64_t shift = kNotMapped;
    bool answered = false;
  };
  /// Memory of this process.
  struct Mapped {
    Allocation memory;  // others at the same addresses are others
    MappingMessage offer;
    std::unique_ptr<OfferedPieces> pieces;  // nullptr: it has none
    bool in_graph = false;
    std::map<int, Reader> readers = {};  // by peer that it was offered to
  };
  using Allocations = std::multimap<const std::byte*, Mapped>;

  void look() override;
  Mapped* find_or_map(const void* address, size_t size_bytes);
  Mapped* find_mapped(const void* address, size_t size_bytes);
  Result<Mapped> export_memory(Allocation memory);
  void withdraw_others(const Allocation& memory);
  [[nodiscard]] bool is_registered(const std::byte* address, size_t size_bytes) const;
  Result<void> offer(int peer, Mapped& mapped);
  void withdraw(Allocations::iterator at);
  Result<void> take_control_message(int peer, const std::string& bytes);
  void answer(int peer, uint64_t number, Result<DeviceMemory> memory);

  Options options_;
  std::mutex mutex_;
  // All below guarded by mutex_.
  uint64_t last_number_ = 0;
  Allocations peer_mapped_;                        // by first address; pieces may be in several
  std::map<const std::byte*, size_t> registered_;  // ranges
  std::vector<std::pair<int, MappingMessage>> offers_;     // to be mapped, with their peers
  std::map<std::pair<int, uint64_t>, DeviceMemory> seen_;  // of peers, by peer and number; nullptr:
                                                           // offered, and not mapped yet
  std::map<int, int> graphs_of_peers_;                     // ends of offers that came, by peer
  std::vector<int> graph_readers_;
  std::vector<int> graph_senders_;
  bool explained_ = false;  // in the log, why something cannot be mapped
};

}  // namespace plexus
