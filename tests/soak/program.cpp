// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/program.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace plexus::soak {
namespace {

constexpr const char* kOpNames[] = {"all_reduce",     "broadcast",  "reduce", "all_gather",
                                    "reduce_scatter", "alltoall",   "gather", "scatter",
                                    "alltoallv",      "allgatherv", "pair"};
constexpr const char* kTypeNames[] = {"int8", "uint8", "int32",  "uint32",   "int64", "uint64",
                                      "half", "float", "double", "bfloat16", "e4m3",  "e5m2"};
constexpr const char* kReductionNames[] = {"sum", "prod", "max", "min", "avg", "premulsum"};
constexpr const char* kMakingNames[] = {"init",   "init_all",           "init_scalable", "split",
                                        "shrink", "suspend and resume", "puts"};
constexpr const char* kChildNames[] = {"that ends soon", "that ends with its parent",
                                       "that outlives its parent"};

bool is_rooted(Op op) {
  return op == Op::kBroadcast || op == Op::kReduce || op == Op::kGather || op == Op::kScatter;
}

bool reduces(Op op) {
  return op == Op::kAllReduce || op == Op::kReduce || op == Op::kReduceScatter;
}

std::string describe(const Job& job, const Call& call) {
  const Operation& operation = job.operations[static_cast<size_t>(call.operation)];
  std::string text = fmt::format("{}:", call.operation);
  if (operation.op == Op::kPair) {
    text += call.is_send ? fmt::format("send to {}", operation.target)
                         : fmt::format("recv from {}", operation.root);
  } else {
    text += name_of(operation.op);
  }
  text += fmt::format(" {} x {}", name_of(operation.type), operation.count);
  if (reduces(operation.op)) {
    text += fmt::format(" {}", kReductionNames[static_cast<int>(operation.reduction)]);
  }
  if (is_rooted(operation.op)) {
    text += fmt::format(" root {}", operation.root);
  }
  text += fmt::format(" on c{}.r{}", operation.comm, call.rank);
  if (call.stream != kNoStream) {
    text += fmt::format(" stream {}", call.stream);
  }
  return text + (call.is_in_place ? " in place" : "") + (call.is_registered ? " registered" : "") +
         (operation.in_windows ? " in windows" : "") +
         (operation.form == Form::kConfig   ? " with a config"
          : operation.form == Form::kCounts ? " with counts"
                                            : "");
}

std::string describe(const Making& making) {
  if (making.kind == MakingKind::kSuspend || making.kind == MakingKind::kPuts) {
    return fmt::format("{} in c{}", kMakingNames[static_cast<int>(making.kind)], making.parent);
  }
  std::string text = fmt::format("{} of c{}", kMakingNames[static_cast<int>(making.kind)],
                                 fmt::join(making.comms, ", c"));
  if (making.kind == MakingKind::kSplit) {
    text += fmt::format(" from c{}, colors {}, keys {}", making.parent, making.colors, making.keys);
  } else if (making.kind == MakingKind::kShrink) {
    text += fmt::format(" from c{} without {}", making.parent, making.excluded);
  } else {
    text += fmt::format(", {} id(s) by process {}", making.nids, making.process_of_id);
  }
  return text;
}

std::string describe(const Process& process) {
  constexpr const char* kContainers[] = {"",           ", user namespace", ", pid namespace",
                                         ", no memfd", ", no attach",      ", small files"};
  constexpr const char* kEndings[] = {"", ", returns without destroy", ", exits without destroy"};
  return fmt::format("{}{}{}{}", process.host_id.empty() ? "" : " NCCL_HOSTID=" + process.host_id,
                     kContainers[static_cast<int>(process.container)],
                     process.closes_stdio ? ", closed stdio" : "",
                     kEndings[static_cast<int>(process.ending)]);
}

/// Assigns numbers to places; those of one communicator are consecutive.
class PlaceNumbers {
 public:
  explicit PlaceNumbers(const Job& job) {
    for (const Comm& comm : job.comms) {
      first_.push_back(count_);
      count_ += static_cast<int>(comm.members.size());
    }
  }
  [[nodiscard]] int of(int comm, int rank) const {
    return first_[static_cast<size_t>(comm)] + rank;
  }
  [[nodiscard]] int count() const { return count_; }

 private:
  std::vector<int> first_;
  int count_ = 0;
};

class Modeller {
 public:
  explicit Modeller(const Job& job) : job_(job), places_(job) {}

  ModelProgram make() {
    ModelProgram model;
    model.nplaces = places_.count();
    model.allows_mixed = job_.allows_mixed;
    for (const Operation& operation : job_.operations) {
      const size_t nranks = job_.comms[static_cast<size_t>(operation.comm)].members.size();
      model.participants.push_back(operation.op == Op::kPair ? 2 : static_cast<int>(nranks));
    }
    for (const Making& making : job_.makings) {
      model.participants.push_back(participants(making));
    }
    for (const Thread& thread : job_.threads) {
      first_stream_ = model.nstreams;
      model.nstreams += thread.nstreams;
      auto& steps = model.threads.emplace_back();
      for (const Step& step : thread.steps) {
        steps.push_back(convert(thread, step));
      }
    }
    return model;
  }

 private:
  int participants(const Making& making) const {
    if (making.parent < 0) {
      return static_cast<int>(job_.comms[static_cast<size_t>(making.comms.front())].members.size());
    }
    return static_cast<int>(job_.comms[static_cast<size_t>(making.parent)].members.size() -
                            making.excluded.size());
  }

  ModelStep convert(const Thread& thread, const Step& step) const {
    ModelStep converted;
    switch (step.kind) {
      case StepKind::kCalls:
        converted.kind = ModelStepKind::kCalls;
        for (const Call& call : step.calls) {
          converted.calls.push_back(convert(call));
        }
        break;
      case StepKind::kMake:
        converted.kind = ModelStepKind::kMake;
        convert_making(thread, step.making, converted);
        break;
      case StepKind::kSync:
        converted.kind = ModelStepKind::kSync;
        for (const int stream : step.streams) {
          converted.streams.push_back(first_stream_ + stream);
        }
        break;
      case StepKind::kDestroy:
      case StepKind::kFinalize:
        converted.kind =
            step.kind == StepKind::kDestroy ? ModelStepKind::kDestroy : ModelStepKind::kFinalize;
        for (const Place& place : step.places) {
          converted.places.push_back(places_.of(place.comm, place.rank));
        }
        break;
      case StepKind::kDelay:
      case StepKind::kFork:
        break;
    }
    return converted;
  }

  ModelCall convert(const Call& call) const {
    const Operation& operation = job_.operations[static_cast<size_t>(call.operation)];
    ModelCall converted{
        .operation = call.operation,
        .place = places_.of(operation.comm, call.rank),
        .stream = call.stream == kNoStream ? kNoStream : first_stream_ + call.stream};
    if (operation.op == Op::kPair) {
      converted.kind = call.is_send ? ModelKind::kSend : ModelKind::kRecv;
      converted.peer = places_.of(operation.comm, call.is_send ? operation.target : operation.root);
    }
    return converted;
  }

  void convert_making(const Thread& thread, int index, ModelStep& step) const {
    const Making& making = job_.makings[static_cast<size_t>(index)];
    step.operation = static_cast<int>(job_.operations.size()) + index;
    for (const int world_rank : thread.ranks) {
      if (making.parent >= 0) {
        const Comm& parent = job_.comms[static_cast<size_t>(making.parent)];
        const int rank = rank_in(parent, world_rank);
        if (rank < 0 || std::find(making.excluded.begin(), making.excluded.end(), rank) !=
                            making.excluded.end()) {
          continue;
        }
        step.places.push_back(places_.of(making.parent, rank));
      }
      for (const int comm : making.comms) {
        const int rank = rank_in(job_.comms[static_cast<size_t>(comm)], world_rank);
        if (rank >= 0) {
          step.made.push_back(places_.of(comm, rank));
        }
      }
    }
  }

  const Job& job_;
  PlaceNumbers places_;
  int first_stream_ = 0;
};

}  // namespace

int rank_in(const Comm& comm, int world_rank) {
  const auto at = std::find(comm.members.begin(), comm.members.end(), world_rank);
  return at == comm.members.end() ? -1 : static_cast<int>(at - comm.members.begin());
}

ModelProgram model_of(const Job& job) { return Modeller(job).make(); }

const char* name_of(Op op) { return kOpNames[static_cast<int>(op)]; }
const char* name_of(ncclDataType_t type) { return kTypeNames[static_cast<int>(type)]; }

std::string describe(const Job& job, const Step& step) {
  std::vector<std::string> parts;
  switch (step.kind) {
    case StepKind::kCalls:
      for (const Call& call : step.calls) {
        parts.push_back(describe(job, call));
      }
      return fmt::format("{}{}", step.is_grouped ? "group: " : "", fmt::join(parts, "; "));
    case StepKind::kMake:
      return describe(job.makings[static_cast<size_t>(step.making)]);
    case StepKind::kSync:
      return fmt::format("synchronize streams {}", step.streams);
    case StepKind::kDestroy:
    case StepKind::kFinalize:
      for (const Place& place : step.places) {
        parts.push_back(fmt::format("c{}.r{}", place.comm, place.rank));
      }
      return fmt::format("{} {}", step.kind == StepKind::kDestroy ? "destroy" : "finalize, destroy",
                         fmt::join(parts, ", "));
    case StepKind::kDelay:
      return fmt::format("pause of {} us", step.delay_us);
    case StepKind::kFork:
      return fmt::format("fork of a child {}", kChildNames[static_cast<int>(step.child)]);
  }
  return "";
}

std::string describe(const Job& job) {
  std::string text = fmt::format("seed {}: {} ranks, {} processes{}{}\n", job.seed, job.nranks,
                                 job.processes.size(), job.is_nonblocking ? ", non-blocking" : "",
                                 job.measures_rates ? ", measures rates" : "");
  if (job.fault.has_value()) {
    text += fmt::format("  fault: {}\n", describe(*job.fault));
  }
  for (const auto& [name, value] : job.environment) {
    text += fmt::format("  {}={}\n", name, value);
  }
  for (size_t comm = 0; comm < job.comms.size(); ++comm) {
    text += fmt::format("  c{}: world ranks {}\n", comm, job.comms[comm].members);
  }
  for (size_t at = 0; at < job.threads.size(); ++at) {
    const Thread& thread = job.threads[at];
    const Process& process = job.processes[static_cast<size_t>(thread.process)];
    text += fmt::format("thread {}: process {}{}, world ranks {}, {} streams\n", at, thread.process,
                        describe(process), thread.ranks, thread.nstreams);
    for (size_t step = 0; step < thread.steps.size(); ++step) {
      text += fmt::format("  {:3} {}\n", step, describe(job, thread.steps[step]));
    }
  }
  return text + fmt::format("order: {} changes kept, {} illegal ones refused\n", job.nperturbed,
                            job.nrefused);
}

}  // namespace plexus::soak
