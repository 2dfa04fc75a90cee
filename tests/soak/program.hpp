// SPDX-License-Identifier: Apache-2.0
// A job: processes, their threads, settings, and the sequence of calls of each thread. Plain values
// made from a seed (generate.hpp), so that every process of the job can make the same job.
#pragma once

#include <cstdint>
#include <optional>
#include <plexus.h>
#include <string>
#include <utility>
#include <vector>

#include "tests/soak/fault.hpp"
#include "tests/soak/model.hpp"

namespace plexus::soak {

enum class Op {
  kAllReduce,
  kBroadcast,
  kReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kAllToAllV,
  kAllGatherV,
  kPair,  // a send and its receive
};
constexpr int kNumOps = 11;

/// How a call of an operation is written.
enum class Form {
  kPlain,
  kConfig,  // with ncclCollConfig_t
  kCounts,  // by the function of plexus.h with counts per rank, which are equal
};

enum class Reduction { kSum, kProd, kMax, kMin, kAvg, kPreMulSum };

/// The common part of the calls that match each other.
struct Operation {
  Op op = Op::kAllReduce;
  int comm = 0;
  size_t count = 0;  // number of elements, as in the call
  ncclDataType_t type = ncclInt8;
  Reduction reduction = Reduction::kSum;
  int root = 0;             // root of a rooted collective; kPair: the sender
  int target = 0;           // kPair: the receiver
  bool in_windows = false;  // all buffers, symmetric ones
  Form form = Form::kPlain;
};

/// One rank's call.
struct Call {
  int operation = 0;
  int rank = 0;  // in the operation's communicator
  bool is_send = false;
  int stream = kNoStream;  // the thread's
  bool is_in_place = false;
  bool is_registered = false;  // buffers from ncclMemAlloc
};

enum class StepKind { kCalls, kMake, kSync, kDestroy, kFinalize, kDelay, kFork };

enum class ChildLife { kShort, kUntilParentEnds, kOutlivesParent };

struct Place {
  int comm = 0;
  int rank = 0;
  bool operator==(const Place&) const = default;
};

/// One step of a thread.
struct Step {
  StepKind kind = StepKind::kCalls;
  std::vector<Call> calls{};
  bool is_grouped = false;
  int making = 0;               // kMake
  std::vector<Place> places{};  // kDestroy, kFinalize
  std::vector<int> streams{};   // kSync
  int delay_us = 0;
  ChildLife child = ChildLife::kShort;
};

enum class MakingKind { kInit, kInitAll, kScalable, kSplit, kShrink, kSuspend, kPuts };

/// How communicators are made: one by init or shrink, or all children of a split. The last
/// two make none: all ranks of `parent` suspend and resume it, or put to each other.
struct Making {
  MakingKind kind = MakingKind::kInit;
  int parent = -1;
  std::vector<int> comms{};     // init, shrink: one; split: by color
  std::vector<int> colors{};    // split: by rank of the parent, NCCL_SPLIT_NOCOLOR
  std::vector<int> keys{};      // split
  std::vector<int> excluded{};  // shrink: ranks of the parent
  int process_of_id = 0;        // init: process that makes the unique id
  int nids = 1;                 // kScalable
};

/// members: by rank, the rank in the world (all ranks of the job).
struct Comm {
  int making = 0;
  std::vector<int> members{};
};

struct Thread {
  int process = 0;
  std::vector<int> ranks{};  // ranks in the world
  int nstreams = 0;
  std::vector<Step> steps{};
};

/// What a process may not do, as in containers.
enum class Container {
  kNone,
  kUserNamespace,     // a user namespace of its own: others cannot open its descriptors
  kProcessNamespace,  // a pid namespace of its own under the host's /proc
  kNoMemfd,           // memfd_create is refused
  kNoAttach,          // process_vm_readv is refused
  kSmallFiles,        // no file may be longer than 64 KiB
  kCount
};

enum class Ending {
  kInOrder,
  kReturns,  // main returns while communicators exist
  kExits     // likewise by _exit
};

struct Process {
  std::string host_id{};      // NCCL_HOSTID; "": not set
  bool forks_first = false;   // fork a child before the first call of the library
  bool closes_stdio = false;  // descriptors 0 to 2 are closed
  Container container = Container::kNone;
  Ending ending = Ending::kInOrder;
};

struct Job {
  uint64_t seed = 0;
  int nranks = 0;
  std::vector<Process> processes{};
  std::vector<Thread> threads{};
  std::vector<Comm> comms{};
  std::vector<Making> makings{};
  std::vector<Operation> operations{};
  std::vector<std::pair<std::string, std::string>> environment{};
  std::optional<Fault> fault{};
  bool is_nonblocking = false;
  bool measures_rates = false;  // hosts are measured, while they are busy
  bool allows_mixed = true;     // as in ModelProgram
  int nperturbed = 0;           // number of changes of order that the model accepted
  int nrefused = 0;             // number of changes that it refused
  // why the job is illegal; "": it is legal; other results are bugs of the generator
  std::string illegal{};
};

/// The rank of `world_rank` in the communicator; -1: not a member.
int rank_in(const Comm& comm, int world_rank);

ModelProgram model_of(const Job& job);

std::string describe(const Job& job, const Step& step);
/// The whole job in readable form.
std::string describe(const Job& job);

const char* name_of(Op op);
const char* name_of(ncclDataType_t type);

}  // namespace plexus::soak
