// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/kernels/cuda/world.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "kernels/cuda/in_turn.hpp"
#include "tests/support/host_block.hpp"
#include "tests/support/random_input.hpp"

namespace plexus::test {
namespace {

bool has_blocks(Collective collective) {
  return collective == Collective::kAllGather || collective == Collective::kReduceScatter ||
         collective == Collective::kAllToAll || collective == Collective::kGather ||
         collective == Collective::kScatter;
}

constexpr uint64_t kGranule = 4;

}  // namespace

std::vector<Program> record_all(const Algorithm& algorithm, int nranks, int root, bool joins) {
  std::vector<int> ring(static_cast<size_t>(nranks));
  for (int rank = 0; rank < nranks; ++rank) {
    ring[static_cast<size_t>(rank)] = rank;
  }
  std::vector<Program> programs;
  for (int rank = 0; rank < nranks; ++rank) {
    programs.push_back(
        algorithm.record({.rank = rank, .ring = ring, .root = root, .joins = joins}));
  }
  return programs;
}

Call make_call(const char* algorithm, int nranks, uint64_t count, Protocol protocol) {
  const Algorithm& row = *find_algorithm(algorithm);
  Call call;
  call.programs = record_all(row, nranks);
  call.collective = row.collective;
  call.protocol = protocol;
  call.count = count;
  call.op = ReduceOp::plain(ReduceKind::kSum);
  return call;
}

void fill_inputs(World& world, DataType type, uint32_t seed) {
  for (size_t rank = 0; rank < world.size(); ++rank) {
    const auto seed_of_rank = static_cast<uint32_t>(seed * world.size() + rank);
    const auto bytes = make_input(type, world.input_bytes(), seed_of_rank);
    std::copy(bytes.begin(), bytes.end(), world.input(rank));
  }
}

Geometry geometry_of(const Call& call) {
  const Program& program = call.programs[0];
  Geometry geometry{};
  geometry.part_count = call.count;
  geometry.blocked = has_blocks(call.collective) && program.nranks > 1;
  geometry.chunks = geometry.blocked ? 1 : static_cast<uint32_t>(program.chunks);
  geometry.chunk_count = call.chunk_bytes / element_size(call.type);
  geometry.last_chunk_count =
      last_chunk_count(call.count, geometry.chunk_count, geometry.chunks, kGranule);
  if (geometry.blocked) {
    const bool gathers =
        call.collective == Collective::kAllGather || call.collective == Collective::kGather;
    const bool scatters =
        call.collective == Collective::kReduceScatter || call.collective == Collective::kScatter;
    geometry.input_stride = gathers ? 0 : call.count;
    geometry.output_stride = scatters ? 0 : call.count;
  }
  const uint64_t loop_count = geometry.chunk_count * geometry.chunks;
  geometry.loops = static_cast<uint32_t>((call.count + loop_count - 1) / loop_count);
  return geometry;
}

size_t blocks_of(const Call& call) {
  return has_blocks(call.collective) ? call.programs.size() : 1;
}

/// A connection between two ranks.
struct World::Link {
  explicit Link(uint32_t slot_bytes)
      : data(kSlots * slot_bytes), lines(kSlots * (kSlotBytesLL + kSlotBytesLL128)) {}
  Fifo fifo{};
  Bytes data;
  Bytes lines;
};

struct World::SendEnd {
  SendConnection host;
  DeviceSend device;
};
struct World::RecvEnd {
  RecvConnection host;
  DeviceRecv device;
};

struct World::Rank {
  Rank(const Program& recorded, size_t bytes) : program(recorded), input(bytes), output(bytes) {}

  Program program;
  bool on_device = false;
  Bytes input;
  Bytes output;
  std::map<int, SendEnd> sends;  // by peer
  std::map<int, RecvEnd> recvs;
  Work work;
  std::vector<LaneRun> lanes;
  // For the device executor:
  std::vector<DeviceSend*> device_sends;
  std::vector<DeviceRecv*> device_recvs;
  std::vector<DeviceLane> device_lanes;
  std::vector<std::vector<uint32_t>> batches;  // by lane
  std::vector<std::byte> scratch;
  uint32_t claimed = 0;
  DeviceControl control{};
  DeviceWork device_work{};
  // For the launch:
  std::vector<DeviceWork> works;
  std::vector<std::vector<uint64_t>> progress;
  DeviceBarrier barrier{};
  uint64_t done = 0;
  DeviceQueue queue{};
};

World::World(Call call, const WorldOptions& options) : call_(std::move(call)), options_(options) {
  const size_t nranks = call_.programs.size();
  blocks_bytes_ = blocks_of(call_) * call_.count * element_size(call_.type);
  for (size_t rank = 0; rank < nranks; ++rank) {
    ranks_.push_back(
        std::make_unique<Rank>(call_.programs[rank], blocks_bytes_ + options_.shift_bytes));
    ranks_.back()->on_device = options_.on_device[rank];
    connect(rank);
    fill_host_work(*ranks_.back());
    fill_device_work(*ranks_.back());
  }
}

World::~World() = default;

std::byte* World::input(size_t rank) { return ranks_[rank]->work.input.address; }
std::vector<std::byte> World::output(size_t rank) const {
  const std::byte* const from = ranks_[rank]->work.output.address;
  return {from, from + blocks_bytes_};
}
DeviceWork& World::device_work(size_t rank) { return ranks_[rank]->device_work; }
DeviceControl& World::control(size_t rank) { return ranks_[rank]->control; }
uint64_t World::done(size_t rank) const { return ranks_[rank]->done & ~kQueueLeft; }
bool World::has_left(size_t rank) const { return (ranks_[rank]->done & kQueueLeft) != 0; }

void World::set_hash(size_t rank, uint32_t hash) {
  ranks_[rank]->work.call.hash = hash;
  ranks_[rank]->device_work.call.hash = hash;
}

void World::set_loops(size_t rank, uint32_t loops) {
  ranks_[rank]->work.geometry.loops = loops;
  ranks_[rank]->device_work.geometry.loops = loops;
}

void World::make_in_place() {
  for (const auto& rank : ranks_) {
    rank->work.output = rank->work.input;
    rank->device_work.output = rank->device_work.input;
  }
}

World::Link& World::link(int from, int to) {
  auto& found = links_[{from, to}];
  if (found == nullptr) {
    found = std::make_unique<Link>(call_.slot_bytes);
    found->fifo.taken = options_.first_step;
  }
  return *found;
}

World::SendEnd World::make_send(int rank, int peer) {
  Link& to = link(rank, peer);
  std::byte* const lines = options_.lines ? to.lines.get() : nullptr;
  const bool by_address = options_.by_address && options_.on_device[static_cast<size_t>(peer)];
  return {SendConnection(&to.fifo, to.data.get(),
                         {.peer = peer,
                          .reach = Reach::kNothing,
                          .inline_bytes_max = options_.inline_bytes,
                          .slot_stride = call_.slot_bytes,
                          .lines = lines}),
          {.fifo = &to.fifo,
           .data = to.data.get(),
           .lines = lines,
           .slot_stride = call_.slot_bytes,
           .step = options_.first_step,
           .taken = options_.first_step,
           .borrowed_until = 0,
           .told = 0,
           .peer = peer,
           .inline_bytes_max = options_.inline_bytes,
           .by_address = by_address ? 1U : 0U,
           .unused = 0}};
}

World::RecvEnd World::make_recv(int rank, int peer) {
  Link& from = link(peer, rank);
  std::byte* const lines = options_.lines ? from.lines.get() : nullptr;
  return {RecvConnection(&from.fifo, from.data.get(),
                         {.peer = peer, .slot_stride = call_.slot_bytes, .lines = lines}),
          {.fifo = &from.fifo,
           .data = from.data.get(),
           .lines = lines,
           .slot_stride = call_.slot_bytes,
           .step = options_.first_step,
           .peer = peer,
           .reads_pointers = options_.reads_pointers ? 1U : 0U}};
}

void World::connect(size_t index) {
  Rank& rank = *ranks_[index];
  const auto self = static_cast<int>(index);
  const size_t peers = rank.program.peers.size();
  rank.work.sends.assign(peers, nullptr);
  rank.work.recvs.assign(peers, nullptr);
  rank.device_sends.assign(peers, nullptr);
  rank.device_recvs.assign(peers, nullptr);
  for (const Lane& lane : rank.program.lanes) {
    for (const Step& step : lane.steps) {
      for (int i = 0; i < step.receives + step.sends; ++i) {
        const auto at = static_cast<size_t>(step.peers_first + i);
        const int peer = rank.program.peers[at];
        if (i < step.receives) {
          auto [end, is_new] = rank.recvs.try_emplace(peer, make_recv(self, peer));
          rank.work.recvs[at] = &end->second.host;
          rank.device_recvs[at] = &end->second.device;
        } else {
          auto [end, is_new] = rank.sends.try_emplace(peer, make_send(self, peer));
          rank.work.sends[at] = &end->second.host;
          rank.device_sends[at] = &end->second.device;
        }
      }
    }
  }
}

void World::fill_host_work(Rank& rank) {
  Work& work = rank.work;
  work.program = &rank.program;
  work.geometry = geometry_of(call_);
  work.type = call_.type;
  work.op = call_.op;
  work.reduce = find_reduce_pair(call_.type, call_.op.kind);
  work.element_bytes = static_cast<uint32_t>(element_size(call_.type));
  work.protocol = call_.protocol;
  work.slot_bytes = call_.slot_bytes;
  work.borrow_bytes_min = kBorrowBytesMin;
  work.exchanges_empty = is_point_to_point(call_.collective);
  work.scratch.resize(static_cast<size_t>(rank.program.scratch_chunks) * work.geometry.chunk_count *
                      work.element_bytes);
  work.input.address = rank.input.get() + options_.shift_bytes;
  work.output.address = rank.output.get() + options_.shift_bytes;
  work.output.size_bytes = blocks_of(call_) * call_.count * work.element_bytes;
  work.call = {.sequence = 7,
               .count = call_.count,
               .hash = 0x1234567,
               .root = 0,
               .collective = static_cast<uint8_t>(call_.collective),
               .type = static_cast<uint8_t>(call_.type),
               .op = static_cast<uint8_t>(call_.op.kind),
               .algorithm = 1,
               .of_vector = 0,
               .has_checksum = 0};
  rank.lanes.reserve(rank.program.lanes.size());
  for (size_t lane = 0; lane < rank.program.lanes.size(); ++lane) {
    rank.lanes.emplace_back(&work, static_cast<int>(lane), rank.lanes.data());
  }
}

void World::fill_device_work(Rank& rank) {
  for (size_t lane = 0; lane < rank.program.lanes.size(); ++lane) {
    const std::vector<Step>& steps = rank.program.lanes[lane].steps;
    rank.batches.push_back(find_batches(rank.program, lane));
    rank.device_lanes.push_back(
        {.steps = steps.data(),
         .batches = rank.batches.back().data(),
         .step_count = static_cast<uint32_t>(steps.size()),
         .awaited = is_awaited(rank.program, static_cast<int>(lane)) ? 1U : 0U});
  }
  const Work& work = rank.work;
  rank.scratch.resize(work.scratch.size());
  rank.device_work = {.lanes = rank.device_lanes.data(),
                      .sends = rank.device_sends.data(),
                      .recvs = rank.device_recvs.data(),
                      .slots = nullptr,
                      .loans = nullptr,
                      .progress = nullptr,
                      .claimed = &rank.claimed,
                      .control = &rank.control,
                      .input = work.input.address,
                      .output = work.output.address,
                      .scratch = rank.scratch.data(),
                      .open_bytes = opens_output(call_) ? work.output.size_bytes : 0,
                      .geometry = work.geometry,
                      .call = work.call,
                      .op = work.op,
                      .scalar = nullptr,
                      .lane_count = static_cast<uint32_t>(rank.device_lanes.size()),
                      .peer_count = static_cast<uint32_t>(work.program->peers.size()),
                      .slot_bytes = work.slot_bytes,
                      .borrow_bytes_min = work.borrow_bytes_min,
                      .scalar_bytes = 0,
                      .type = work.type,
                      .protocol = work.protocol,
                      .exchanges_empty = work.exchanges_empty,
                      .has_lines = options_.lines,
                      .shares_scratch = work.program->shares_scratch,
                      .closes_output = false};
}

/// `times` works that differ only in their position in the queue and the call's number.
void World::prepare_launch(Rank& rank, uint32_t times) {
  rank.works.assign(times, rank.device_work);
  rank.progress.assign(times, std::vector<uint64_t>(rank.device_lanes.size()));
  for (uint32_t i = 0; i < times; ++i) {
    rank.works[i].progress = rank.progress[i].data();
    rank.works[i].call.sequence += i;
  }
  rank.done = 0;
  rank.queue = {.works = rank.works.data(),
                .work_count = times,
                .block_count = static_cast<uint32_t>(rank.device_lanes.size()),
                .barrier = &rank.barrier,
                .done = &rank.done,
                .times = nullptr,
                .next = nullptr};
}

/// A block for each lane of a device rank, or one for all ranks.
std::vector<DeviceBlock> World::make_blocks() {
  std::vector<DeviceBlock> blocks;
  DeviceQueue* next = nullptr;
  for (auto at = ranks_.rbegin(); at != ranks_.rend(); ++at) {
    Rank& rank = **at;
    if (!rank.on_device) {
      continue;
    }
    if (options_.in_turn) {
      rank.queue.next = std::exchange(next, &rank.queue);
      continue;
    }
    for (uint32_t lane = 0; lane < rank.queue.block_count; ++lane) {
      blocks.push_back({rank.queue, lane, 0});
    }
  }
  if (next != nullptr) {
    blocks.push_back({*next, 0, 1});
  }
  return blocks;
}

/// Runs one work of a host rank from its beginning, advancing the lanes in turn.
bool World::run_host(const std::vector<Rank*>& ranks, uint32_t times) {
  RunQueue nobody(0);
  struct Running {
    Rank* rank;
    uint32_t left;
  };
  std::vector<Running> running;
  for (Rank* const rank : ranks) {
    for (LaneRun& lane : rank->lanes) {
      lane.restart();
    }
    for (auto& [peer, end] : rank->sends) {
      end.host.begin_call(rank->work.call);
    }
    running.push_back({rank, times});
  }
  size_t left = running.size();
  while (left > 0 && !host_stop_.load()) {
    for (Running& each : running) {
      if (each.left == 0) {
        continue;
      }
      bool all_done = true;
      for (LaneRun& lane : each.rank->lanes) {
        const Progress progress = lane.advance(nobody);
        if (progress == Progress::kFailed) {
          return false;
        }
        all_done = all_done && progress == Progress::kDone;
      }
      if (all_done) {
        --each.left;
        left -= each.left == 0 ? 1 : 0;
        for (LaneRun& lane : each.rank->lanes) {
          lane.restart();
        }
      }
    }
    watch();
    std::this_thread::yield();
  }
  return left == 0;
}

std::vector<DeviceBlock> World::prepare(uint32_t times) {
  for (const auto& rank : ranks_) {
    if (rank->on_device) {
      prepare_launch(*rank, times);
    }
  }
  return make_blocks();
}

bool World::has_succeeded(uint32_t times) const {
  return std::all_of(ranks_.begin(), ranks_.end(), [&](const auto& rank) {
    return !rank->on_device ||
           (rank->control.stop == DeviceStop::kGoOn && rank->done == kQueueLeft + times &&
            rank->barrier.arrived == 0 && rank->barrier.opened == 0 && rank->barrier.left == 0);
  });
}

std::vector<Region> World::regions() const {
  using Kind = Region::Kind;
  std::vector<Region> found;
  const auto add = [&](Kind kind, const auto& one) { found.push_back({kind, &one, sizeof(one)}); };
  const auto add_all = [&](Kind kind, const auto& values) {
    found.push_back({kind, values.data(), values.size() * sizeof(values[0])});
  };
  for (const auto& rank : ranks_) {
    add(Kind::kPinned, rank->control);
    add(Kind::kPinned, rank->done);
    add_all(Kind::kPinned, rank->works);
    found.push_back({Kind::kBytes, rank->input.get(), blocks_bytes_});
    found.push_back({Kind::kBytes, rank->output.get(), blocks_bytes_});
    add_all(Kind::kBytes, rank->scratch);
    add(Kind::kDevice, rank->claimed);
    add(Kind::kDevice, rank->barrier);
    add_all(Kind::kDevice, rank->device_lanes);
    add_all(Kind::kDevice, rank->device_sends);
    add_all(Kind::kDevice, rank->device_recvs);
    for (size_t lane = 0; lane < rank->device_lanes.size(); ++lane) {
      add_all(Kind::kDevice, rank->program.lanes[lane].steps);
      add_all(Kind::kDevice, rank->batches[lane]);
    }
    for (const auto& progress : rank->progress) {
      add_all(Kind::kDevice, progress);
    }
    for (const auto& [peer, end] : rank->sends) {
      add(Kind::kDevice, end.device);
    }
    for (const auto& [peer, end] : rank->recvs) {
      add(Kind::kDevice, end.device);
    }
  }
  for (const auto& [ends, link] : links_) {
    add(Kind::kDevice, link->fifo);
    found.push_back({Kind::kBytes, link->data.get(), kSlots * call_.slot_bytes});
    found.push_back({Kind::kLines, link->lines.get(), kSlots * (kSlotBytesLL + kSlotBytesLL128)});
  }
  return found;
}

bool World::run(uint32_t times) {
  std::vector<Rank*> hosts;
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<BlockState>> states;
  std::vector<std::unique_ptr<Rendezvous>> rendezvous;
  std::atomic<uint32_t> running{0};
  host_stop_ = false;
  for (const auto& rank : ranks_) {
    if (!rank->on_device) {
      hosts.push_back(rank.get());
    }
  }
  for (const DeviceBlock& started : prepare(times)) {
    BlockState& state = *states.emplace_back(std::make_unique<BlockState>());
    Rendezvous& barrier = *rendezvous.emplace_back(std::make_unique<Rendezvous>(options_.threads));
    for (uint32_t thread = 0; thread < options_.threads; ++thread) {
      ++running;
      threads.emplace_back([&, thread, started] {
        const HostBlock block(thread, options_.threads, barrier);
        run_block(block, state, started);
        --running;
      });
    }
  }
  bool good = run_host(hosts, times);
  if (!good) {  // otherwise the device ranks would wait for ever
    abort();
  }
  while (running > 0) {
    watch();
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return good && has_succeeded(times);
}

void World::watch() {
  for (const auto& rank : ranks_) {
    if (load_acquire(&rank->control.stop) == DeviceStop::kFailed) {
      abort();
    }
  }
}

void World::abort() {
  host_stop_ = true;
  for (const auto& rank : ranks_) {
    if (load_acquire(&rank->control.stop) == DeviceStop::kGoOn) {
      store_release(&rank->control.stop, DeviceStop::kAborted);
    }
  }
}

}  // namespace plexus::test
