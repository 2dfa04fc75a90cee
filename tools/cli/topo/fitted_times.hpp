// SPDX-License-Identifier: Apache-2.0
// What nccl-tests would show on a machine: NCCL's choice of algorithm and protocol (nccl_model),
// and times by costs that tests/bench/public_accuracy fitted to public measurements: a start, hops,
// and bytes over the narrowest link, by generation of GPUs and kind of network. How far off they
// are on machines that were not fitted: docs/simulator.md.
//
//   const FittedMachine machine = describe_fitted(cluster, Network::kInfiniBand);
//   const FittedChoice way = machine.choose(FittedCall::kAllReduce, 1 << 20);
//   fitted_time_us(fitted_costs(), machine, FittedCall::kAllReduce, way, 1 << 20);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/topo/cluster.hpp"
#include "tools/cli/topo/nccl_model.hpp"

namespace plexus {

/// The kind matters as much as the rate: two nodes of H100 take 27 us for 8 bytes over InfiniBand,
/// 69 over EFA, 123 over TCPXO. kEfa1: of nodes older than Hopper, by protocol Simple only.
/// kStaged: through host memory, as GPUs without GPUDirect do.
enum class Network : uint8_t {
  kInfiniBand,
  kRoce,
  kEfa,
  kEfa1,
  kTcpx,
  kTcpxo,
  kSlingshot,
  kTcp,
  kStaged
};
inline constexpr size_t kNetworks = 9;
std::optional<Network> find_network(std::string_view name);
std::string network_names();

/// How GPUs of a node reach each other, and how new they are.
enum class GpuFamily : uint8_t { kPcie, kVolta, kAmpere, kHopper, kBlackwell };
inline constexpr size_t kGpuFamilies = 5;
const char* name(GpuFamily kind);

/// Members are numbers only: the fit takes them as one array.
struct GpuCosts {
  double start_us;           // a kernel's, with what a benchmark adds
  ByProtocol hop_us;         // from one GPU to the next
  ByProtocol lane_gb_per_s;  // of one channel: what a chunk takes at each hop
  ByProtocol efficiency;     // of the channels' bandwidth in a ring
  double tree_efficiency;    // and of that in a tree
  double nvls_us;
  double nvls_efficiency;  // of the NVLinks of a GPU
  double p2p_us;           // for each doubling of the ranks
  double p2p_efficiency;   // of the NVLinks
};
struct NetworkCosts {
  double hop_us;         // from node to node
  double simple_factor;  // of a hop by protocol Simple
  double efficiency;     // of the NICs' rate
  double message_us;     // between messages of one NIC
};
struct SharedCosts {
  ByProtocol chunk_bytes;  // beyond which the next hop begins before a message has come
  double tree_chunk_bytes;
  double nvls_fill_bytes;  // that pass before the rate of bytes counts
  double nvls_tree_fill_bytes;
  double nvls_tree_hop;   // in hops of the network
  double nvls_tree_fill;  // of a large call, in hops
  double ll128_factor;    // of a hop by LL128
  double own_copy;        // what a rank's own block costs, of what sending it would
  double one_process_us;  // launch of each GPU by a process that has all
  double torch_us;        // of a loop in PyTorch
};
struct FittedCosts {
  std::array<GpuCosts, kGpuFamilies> gpus;
  std::array<NetworkCosts, kNetworks> networks;
  SharedCosts shared;
};
const FittedCosts& fitted_costs();

enum class FittedCall : uint8_t {
  kBroadcast,
  kReduce,
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kSendRecv
};
/// "all_reduce"; nullopt: there is none of that name.
std::optional<FittedCall> find_fitted_call(std::string_view name);
const char* name(FittedCall call);

/// Who calls: a process for each GPU, one for all GPUs of the node, or a loop in PyTorch.
enum class Setup : uint8_t { kProcesses, kOneProcess, kTorch };

struct FittedChoice {
  NcclAlgorithm algorithm = NcclAlgorithm::kRing;
  NcclProtocol protocol = NcclProtocol::kSimple;
  bool direct = false;  // sends and receives, no algorithm
};

struct FittedMachine {
  NcclCluster cluster;
  GpuFamily gpu = GpuFamily::kPcie;
  Network network = Network::kInfiniBand;  // of several nodes
  int nics = 0;                            // of a node
  double nic_gb_per_s = 0;                 // of all of them

  /// As NCCL would. `forced`: as NCCL_ALGO.
  [[nodiscard]] FittedChoice choose(FittedCall call,
                                    size_t bytes,
                                    std::optional<NcclAlgorithm> forced = {}) const;
};

/// kEfa of GPUs older than Hopper becomes kEfa1.
FittedMachine describe_fitted(const ClusterChannels& cluster, Network network);

/// `bytes` as nccl-tests counts them.
double fitted_time_us(const FittedCosts& costs,
                      const FittedMachine& machine,
                      FittedCall call,
                      const FittedChoice& way,
                      size_t bytes,
                      Setup setup = Setup::kProcesses);

/// Bus bandwidth as nccl-tests shows it is bytes / time times this.
double bus_factor(FittedCall call, int ranks);

}  // namespace plexus
