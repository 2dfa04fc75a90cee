// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/gpu_world.hpp"

#include <algorithm>
#include <chrono>
#include <set>

namespace plexus::test {
namespace {

constexpr size_t kAlignment = 256;
constexpr uint32_t kHash = 0x1234567;

size_t rounded(size_t size_bytes) {
  return (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

size_t link_bytes(const Call& call) {
  const size_t lines =
      uses_lines(call.protocol) ? kSlots * (kSlotBytesLL + kSlotBytesLL128) : size_t{0};
  return rounded(sizeof(Fifo)) + rounded(kSlots * call.slot_bytes) + rounded(lines);
}

}  // namespace

Memory allocate(size_t size_bytes, bool pinned) {
  void* place = nullptr;
  check(pinned ? cudaHostAlloc(&place, size_bytes, cudaHostAllocMapped)
               : cudaMalloc(&place, size_bytes),
        "memory of the world");
  Memory memory(place, FreeEither{pinned});
  check(cudaMemset(place, 0, size_bytes), "zeroing memory");
  return memory;
}

Arena::Arena(size_t capacity_bytes, bool pinned)
    : memory_(allocate(capacity_bytes, pinned)), image_(capacity_bytes) {}

std::byte* Arena::reserve(size_t size_bytes) {
  std::byte* const place = base() + used_;
  used_ += rounded(size_bytes);
  if (used_ > image_.size()) {
    throw std::runtime_error("the arena is too small");
  }
  return place;
}

void Arena::write() {
  check(cudaMemcpy(base(), image_.data(), used_, cudaMemcpyDefault), "copy to the device");
}

size_t GpuWorld::arena_bytes(const Call& call, const GpuOptions& options) {
  size_t bytes = 0;
  size_t links = 0;
  for (const Program& program : call.programs) {
    const size_t peers = program.peers.size();
    const size_t descriptors =
        program.step_count() * sizeof(Step) +
        peers * (sizeof(DeviceSend) + sizeof(DeviceRecv) + 2 * sizeof(void*));
    const size_t scratch = static_cast<size_t>(program.scratch_chunks) * call.chunk_bytes;
    const size_t pieces = 16 + 2 * peers + 2 * program.lanes.size();
    bytes += options.channels * (descriptors + scratch + pieces * 2 * kAlignment);
    std::set<int> receivers;
    for (const Lane& lane : program.lanes) {
      for (const Step& step : lane.steps) {
        receivers.insert(program.send_peers(step).begin(), program.send_peers(step).end());
      }
    }
    links += receivers.size();
  }
  return bytes + options.channels * links * link_bytes(call) + (1U << 20);
}

size_t GpuWorld::table_bytes(const Call& call, const GpuOptions& options) {
  size_t bytes = kAlignment;
  for (const Program& program : call.programs) {
    bytes += rounded(sizeof(DeviceWork)) + program.lanes.size() * sizeof(DeviceBlock);
  }
  return options.channels * bytes;
}

GpuWorld::GpuWorld(const Call& call, const GpuOptions& options)
    : call_(call),
      options_(options),
      nranks_(call.programs.size()),
      buffer_bytes_(blocks_of(call) * call.count * element_size(call.type)),
      arena_(arena_bytes(call, options), options.host_rank >= 0),
      tables_(table_bytes(call, options), true),
      controls_(nranks_),
      done_(nranks_ * options.channels),
      hashes_(nranks_, kHash) {
  for (size_t rank = 0; rank < nranks_; ++rank) {
    const bool pinned = options.host_rank >= 0;
    memory_.push_back({allocate(buffer_bytes_, pinned), allocate(buffer_bytes_, pinned),
                       reinterpret_cast<uint32_t*>(arena_.reserve(sizeof(uint32_t)))});
  }
}

void GpuWorld::set_hash(size_t rank, uint32_t hash) { hashes_[rank] = hash; }

void GpuWorld::set_input(size_t rank, const std::byte* bytes) {
  if (blocks_ == nullptr) {
    build();
  }
  check(cudaMemcpy(memory_[rank].input.get(), bytes, buffer_bytes_, cudaMemcpyDefault), "input");
}

std::vector<std::byte> GpuWorld::output(size_t rank) const {
  std::vector<std::byte> bytes(buffer_bytes_);
  check(cudaMemcpy(bytes.data(), memory_[rank].output.get(), buffer_bytes_, cudaMemcpyDefault),
        "output");
  return bytes;
}

/// [from * nranks + to], for connections that some program uses.
std::vector<GpuWorld::Link> GpuWorld::make_links() {
  std::vector<Link> links(nranks_ * nranks_);
  for (const Program& program : call_.programs) {
    for (const Lane& lane : program.lanes) {
      for (const Step& step : lane.steps) {
        for (const int peer : program.send_peers(step)) {
          Link& link =
              links[static_cast<size_t>(program.rank) * nranks_ + static_cast<size_t>(peer)];
          if (link.fifo == nullptr) {
            link.fifo = reinterpret_cast<Fifo*>(arena_.reserve(sizeof(Fifo)));
            link.data = arena_.reserve(kSlots * call_.slot_bytes);
            link.lines = uses_lines(call_.protocol)
                             ? arena_.reserve(kSlots * (kSlotBytesLL + kSlotBytesLL128))
                             : nullptr;
          }
        }
      }
    }
  }
  return links;
}

DeviceSend* GpuWorld::put_send(size_t peer, const Link& link) {
  DeviceSend end{.fifo = link.fifo,
                 .data = link.data,
                 .lines = link.lines,
                 .slot_stride = call_.slot_bytes,
                 .step = 0,
                 .taken = 0,
                 .borrowed_until = 0,
                 .told = 0,
                 .peer = static_cast<int32_t>(peer),
                 .inline_bytes_max = kInlineBytes,
                 .by_address = options_.by_address ? 1U : 0U,
                 .unused = 0};
  return arena_.put(std::span(&end, 1));
}

DeviceRecv* GpuWorld::put_recv(size_t peer, const Link& link) {
  DeviceRecv end{.fifo = link.fifo,
                 .data = link.data,
                 .lines = link.lines,
                 .slot_stride = call_.slot_bytes,
                 .step = 0,
                 .peer = static_cast<int32_t>(peer),
                 .reads_pointers = 1};
  return arena_.put(std::span(&end, 1));
}

void GpuWorld::put_ends(DeviceWork& work, size_t rank, std::span<const Link> links) {
  const Program& program = call_.programs[rank];
  std::vector<DeviceSend*> sends(program.peers.size());
  std::vector<DeviceRecv*> recvs(program.peers.size());
  std::vector<DeviceSend*> send_to(nranks_);
  std::vector<DeviceRecv*> recv_from(nranks_);
  for (const Lane& lane : program.lanes) {
    for (const Step& step : lane.steps) {
      for (int i = 0; i < step.receives + step.sends; ++i) {
        const auto at = static_cast<size_t>(step.peers_first + i);
        const auto peer = static_cast<size_t>(program.peers[at]);
        if (i < step.receives) {
          DeviceRecv*& end = recv_from[peer];
          end = end == nullptr ? put_recv(peer, links[peer * nranks_ + rank]) : end;
          recvs[at] = end;
        } else {
          DeviceSend*& end = send_to[peer];
          end = end == nullptr ? put_send(peer, links[rank * nranks_ + peer]) : end;
          sends[at] = end;
        }
      }
    }
  }
  work.sends = arena_.put(std::span(sends));
  work.recvs = arena_.put(std::span(recvs));
}

void GpuWorld::put_lanes(DeviceWork& work, const Program& program) {
  std::vector<DeviceLane> lanes;
  for (size_t lane = 0; lane < program.lanes.size(); ++lane) {
    std::vector<Step> steps = program.lanes[lane].steps;
    std::vector<uint32_t> batches = find_batches(program, lane);
    lanes.push_back({arena_.put(std::span(steps)), arena_.put(std::span(batches)),
                     static_cast<uint32_t>(steps.size()),
                     is_awaited(program, static_cast<int>(lane)) ? 1U : 0U});
  }
  work.lanes = arena_.put(std::span(lanes));
  work.lane_count = static_cast<uint32_t>(lanes.size());
  work.peer_count = static_cast<uint32_t>(program.peers.size());
  work.progress = reinterpret_cast<uint64_t*>(arena_.reserve(lanes.size() * sizeof(uint64_t)));
}

DeviceWork GpuWorld::make_work(size_t rank, uint32_t channel, std::span<const Link> links) {
  const Program& program = call_.programs[rank];
  Call part = call_;
  part.count = call_.count / options_.channels;
  DeviceWork work{};
  work.geometry = geometry_of(part);
  work.geometry.part_offset = channel * part.count;
  work.geometry.input_stride *= options_.channels;
  work.geometry.output_stride *= options_.channels;
  put_ends(work, rank, links);
  put_lanes(work, program);
  work.claimed = memory_[rank].claimed;
  work.control = controls_.get() + rank;
  work.input = static_cast<std::byte*>(memory_[rank].input.get());
  work.output = static_cast<std::byte*>(memory_[rank].output.get());
  work.open_bytes = opens_output(call_) ? buffer_bytes_ : 0;
  work.scratch = arena_.reserve(static_cast<size_t>(program.scratch_chunks) * call_.chunk_bytes);
  work.call = {.sequence = 1,
               .count = call_.count,
               .hash = hashes_[rank],
               .root = 0,
               .collective = static_cast<uint8_t>(call_.collective),
               .type = static_cast<uint8_t>(call_.type),
               .op = static_cast<uint8_t>(call_.op.kind),
               .algorithm = 1,
               .of_vector = 0,
               .has_checksum = 0};
  work.op = call_.op;
  work.slot_bytes = call_.slot_bytes;
  work.borrow_bytes_min = kBorrowBytesMin;
  work.type = call_.type;
  work.protocol = call_.protocol;
  work.exchanges_empty = is_point_to_point(call_.collective);
  work.has_lines = true;
  return work;
}

DeviceQueue GpuWorld::make_queue(size_t rank, uint32_t channel, std::span<const Link> links) {
  DeviceWork work = make_work(rank, channel, links);
  return {.works = tables_.put(std::span(&work, 1)),
          .work_count = 1,
          .block_count = work.lane_count,
          .barrier = reinterpret_cast<DeviceBarrier*>(arena_.reserve(sizeof(DeviceBarrier))),
          .done = done_.get() + rank * options_.channels + channel,
          .times = nullptr,
          .next = nullptr};
}

void GpuWorld::build() {
  std::vector<DeviceBlock> blocks;
  for (uint32_t channel = 0; channel < options_.channels; ++channel) {
    const std::vector<Link> links = make_links();
    for (size_t rank = 0; rank < nranks_; ++rank) {
      if (static_cast<int>(rank) == options_.host_rank) {
        make_host_rank(rank, links);
        continue;
      }
      const DeviceQueue queue = make_queue(rank, channel, links);
      const auto lanes = static_cast<uint32_t>(call_.programs[rank].lanes.size());
      for (uint32_t lane = 0; lane < lanes; ++lane) {
        blocks.push_back({queue, lane, 0});
      }
    }
  }
  blocks_ = tables_.put(std::span(blocks));
  block_count_ = static_cast<uint32_t>(blocks.size());
  arena_.write();
  tables_.write();
}

void GpuWorld::start(cudaStream_t stream) {
  if (blocks_ == nullptr) {
    build();
  }
  check(static_cast<cudaError_t>(launch_blocks(blocks_, block_count_, options_.threads, stream)),
        "cooperative launch");
}

void GpuWorld::make_host_rank(size_t rank, std::span<const Link> links) {
  host_ = std::make_unique<HostRank>();
  const Program& program = call_.programs[rank];
  const DeviceWork like = make_work(rank, 0, links);
  Work& work = host_->work;
  work.program = &program;
  work.geometry = like.geometry;
  work.type = like.type;
  work.op = like.op;
  work.reduce = find_reduce_pair(like.type, like.op.kind);
  work.element_bytes = static_cast<uint32_t>(element_size(like.type));
  work.protocol = like.protocol;
  work.slot_bytes = like.slot_bytes;
  work.borrow_bytes_min = like.borrow_bytes_min;
  work.input.address = like.input;
  work.output.address = like.output;
  work.call = like.call;
  work.sends.assign(program.peers.size(), nullptr);
  work.recvs.assign(program.peers.size(), nullptr);
  for (const Lane& lane : program.lanes) {
    for (const Step& step : lane.steps) {
      for (int i = 0; i < step.receives + step.sends; ++i) {
        const auto at = static_cast<size_t>(step.peers_first + i);
        const auto peer = static_cast<size_t>(program.peers[at]);
        const Link& link = links[i < step.receives ? peer * nranks_ + rank : rank * nranks_ + peer];
        if (i < step.receives) {
          const RecvConnection end(link.fifo, link.data,
                                   {.peer = static_cast<int>(peer),
                                    .slot_stride = call_.slot_bytes,
                                    .lines = link.lines});
          work.recvs[at] = &host_->recvs.try_emplace(peer, end).first->second;
        } else {
          const SendConnection end(link.fifo, link.data,
                                   {.peer = static_cast<int>(peer),
                                    .slot_stride = call_.slot_bytes,
                                    .lines = link.lines});
          work.sends[at] = &host_->sends.try_emplace(peer, end).first->second;
        }
      }
    }
  }
  host_->lanes.reserve(program.lanes.size());
  for (size_t lane = 0; lane < program.lanes.size(); ++lane) {
    host_->lanes.emplace_back(&work, static_cast<int>(lane), host_->lanes.data());
  }
}

void GpuWorld::run_host_rank() {
  RunQueue nobody(0);
  const auto begin = std::chrono::steady_clock::now();
  for (bool done = false; !done;) {
    done = true;
    for (LaneRun& lane : host_->lanes) {
      const Progress progress = lane.advance(nobody);
      if (progress == Progress::kFailed ||
          std::chrono::steady_clock::now() - begin > std::chrono::seconds(20)) {
        for (size_t rank = 0; rank < nranks_; ++rank) {
          __atomic_store_n(&control(rank).stop, DeviceStop::kAborted, __ATOMIC_RELEASE);
        }
        throw std::runtime_error("the host rank does not come to its end");
      }
      done = done && progress == Progress::kDone;
    }
  }
}

void GpuWorld::run() {
  start(nullptr);
  if (host_ != nullptr) {
    run_host_rank();
  }
  check(cudaDeviceSynchronize(), "the kernel");
}

}  // namespace plexus::test
