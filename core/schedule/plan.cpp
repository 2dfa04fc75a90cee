// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/plan.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

#include "core/base/hash.hpp"
#include "core/schedule/call_buffers.hpp"
#include "core/schedule/message_count.hpp"
#include "core/tuning/explain_choice.hpp"
#include "core/tuning/partition.hpp"
#include "guest/assert.hpp"
#include "kernels/program/in_place.hpp"

namespace plexus {
namespace {

constexpr size_t kPlansMax = 64;  // per communicator
// Messages of so many bytes are sent by address where the receiver can read the sender's memory,
// which saves a copy, but lets the sender wait for the reader (docs/performance.md has the times):
constexpr uint32_t kBorrowBytesMin = uint32_t{8} * 1024;
// Between CUDA ranks of a process on one device: steps that only pass addresses run at once
// (two_shot of 8 ranks on an H200, 64 KiB: 101 us with 8 KiB here, 37 with 2 KiB).
constexpr uint32_t kBorrowBytesOfDevice = uint32_t{2} * 1024;
// where all ranks wait for each other anyway
constexpr uint32_t kBorrowBytesOfExchange = uint32_t{4} * 1024;
// where a sender can be ahead by many messages
constexpr uint32_t kBorrowBytesOfRooted = uint32_t{16} * 1024;
// Where the reader has to get a core first, calls of at most so many bytes are copied.
constexpr uint64_t kCopiedBytesMax = uint64_t{32} * 1024;
constexpr uint64_t kCopiedBytesOfRootedMax = uint64_t{64} * 1024;
constexpr uint32_t kNoBorrow = std::numeric_limits<uint32_t>::max();
constexpr uint64_t kStreamingBytesMin =
    uint64_t{16} * 1024 * 1024;  // larger outputs do not stay in a core's caches

/// The index of a connection (see ConnectionKey). Collectives of each channel, sends and receives,
/// and the messages of collectives with counts per rank have separate connections.
int first_index(const Task& task, int channel) {
  const int of_collective = 2 * channel;
  return !is_point_to_point(task.shape.collective) ? of_collective
         : task.shape.of_vector                    ? of_collective + 1 + kIndexStride
                                                   : of_collective + 1;
}

/// The choice for calls without alternatives.
Choice only_choice(const Algorithm& algorithm, const PlanContext& context, int channels) {
  return {.algorithm = &algorithm,
          .protocol = Protocol::kSimple,
          .channels = channels,
          .chunk_bytes = context.slot_bytes};
}

/// Channels that share the message `call`, equal at both of its ends.
int message_channels(const PlanContext& context, const CallShape& call) {
  const TransportKind transport = context.connections->transport_to(call.root);
  return transport == TransportKind::kNet || transport == TransportKind::kXdc
             ? compute_message_channels(call.count * element_size(call.datatype()),
                                        context.net_channels)
             : 1;
}

/// A choice as one number, which all ranks must agree on. Its low byte is CallRecord::algorithm.
uint64_t choice_number(const Choice& choice) {
  const RecordedAlgorithm* const recorded = choice.algorithm->recorded;
  const auto row =
      recorded != nullptr ? 0 : static_cast<uint64_t>(choice.algorithm - algorithms().data()) + 1;
  return row | static_cast<uint64_t>(choice.protocol) << 8 |
         static_cast<uint64_t>(choice.channels) << 16 |
         static_cast<uint64_t>(choice.chunk_bytes) << 32;
}

/// A call's record without the fields that depend on its number.
CallRecord record_of(const Task& task, const Choice& choice) {
  CallRecord record{};
  record.count = task.shape.count;
  record.root = task.shape.root;
  record.collective = static_cast<uint8_t>(task.shape.collective);
  record.type = static_cast<uint8_t>(task.shape.datatype());
  record.op = static_cast<uint8_t>(task.op.kind);
  record.of_vector = task.shape.of_vector || task.shape.blocks.get() != nullptr ? 1 : 0;
  record.has_checksum = task.shape.settings.has_checksum ? 1 : 0;
  Fnv1a hash;  // hashes everything that all ranks must agree on
  if (is_point_to_point(task.shape.collective)) {
    // in bytes, as the types on the two ends may differ
    hash.mix(task.shape.count * element_size(task.shape.datatype()));
  } else {
    record.algorithm = static_cast<uint8_t>(choice_number(choice));
    hash.mix(choice_number(choice));
    if (choice.algorithm->recorded != nullptr) {
      hash.mix(choice.algorithm->recorded->hash);
    }
    hash.mix(static_cast<uint64_t>(task.shape.collective) << 16 |
             static_cast<uint64_t>(task.shape.datatype()) << 8 |
             static_cast<uint64_t>(task.op.kind));
    hash.mix(task.shape.count);
    if (task.shape.blocks.get() != nullptr) {
      for (const uint64_t count : task.shape.blocks->counts) {
        hash.mix(count);
      }
    }
    hash.mix(is_rooted(task.shape.collective) ? static_cast<uint64_t>(task.shape.root) : 0);
  }
  record.hash = static_cast<uint32_t>(hash.value() ^ (hash.value() >> 32));
  return record;
}

/// The hash of a call with its number mixed in, so that consecutive calls differ.
uint32_t hash_with_sequence(uint32_t hash, uint64_t sequence) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;  // 2^64 / golden ratio (Knuth, TAOCP 6.4)
  const uint64_t mixed = (sequence + 1) * kGolden;
  return hash ^ static_cast<uint32_t>(mixed >> 32);
}

/// What a call passes between two ranks. `shapes`: all calls of its group.
MessageTraits traits_of(std::span<const CallShape> shapes,
                        const CallShape& call,
                        const Geometry& geometry) {
  const auto answers = [&](const CallShape& other) {
    return is_point_to_point(other.collective) && other.collective != call.collective;
  };
  const bool one_way = is_point_to_point(call.collective)
                           ? std::none_of(shapes.begin(), shapes.end(), answers)
                           : is_rooted(call.collective);
  return {.size_bytes =
              geometry.part_count * element_size(call.datatype()) / std::max(geometry.chunks, 1U),
          .both_ways = !one_way,
          .reduces = is_reduction(call.collective)};
}

/// The largest number of ranks of a host; `nodes`: positions at which hosts begin.
int most_ranks(const std::vector<int>& nodes, int nranks) {
  int most = 0;
  for (size_t node = 0; node < nodes.size(); ++node) {
    most = std::max(most, (node + 1 < nodes.size() ? nodes[node + 1] : nranks) - nodes[node]);
  }
  return most;
}

/// Of the larger buffer; equal on all ranks.
uint64_t call_bytes(const Task& task, int nranks) {
  return buffer_count(task.shape.collective, task.shape.count, nranks) *
         element_size(task.shape.datatype());
}

uint64_t longest_message_bytes(const Work& work) {
  const Geometry& geometry = work.geometry;
  const uint64_t last = geometry.blocked ? geometry.part_count : geometry.last_chunk_count;
  const uint64_t count = geometry.loops > 1 ? geometry.chunk_count : last;
  return std::min<uint64_t>(count * work.element_bytes, work.slot_bytes);
}

/// Where a rank of the host reads the messages of `work`.
uint32_t borrow_bytes_of_host(const Task& task, const PlanContext& context, const Work& work) {
  const CallShape& call = task.shape;
  const bool rooted = is_rooted(call.collective);
  if (context.state->oversubscribed() &&
      call_bytes(task, context.nranks) <= (rooted ? kCopiedBytesOfRootedMax : kCopiedBytesMax)) {
    return kNoBorrow;
  }
  const bool copies_meanwhile = call.collective == Collective::kAllGather && !call.in_place;
  const uint32_t from = rooted ? std::min(kBorrowBytesOfRooted, context.slot_bytes)
                        : is_point_to_point(call.collective) || copies_meanwhile
                            ? kBorrowBytesMin
                            : kBorrowBytesOfExchange;
  return longest_message_bytes(work) >= from ? from : kNoBorrow;
}

/// From which size on messages are sent by address.
void set_borrowing(Work& work, const Task& task, const PlanContext& context) {
  const uint32_t of_device = context.shares_device ? kBorrowBytesOfDevice : kBorrowBytesMin;
  work.borrow_bytes_min =
      context.device == nullptr ? borrow_bytes_of_host(task, context, work) : of_device;
  work.gather_bytes_min = kBorrowBytesMin;
}

/// In place: a copy of what was just stored in smaller pieces waits for the stores.
void set_user_buffer(UserBuffer& buffer,
                     const void* address,
                     uint64_t size_bytes,
                     bool mapped,
                     uint32_t borrow_bytes_min,
                     KnownPlaces& places) {
  buffer.address = static_cast<std::byte*>(const_cast<void*>(
      address));  // NOLINT(cppcoreguidelines-pro-type-const-cast): inputs are only read
  buffer.size_bytes = size_bytes;
  buffer.place =
      mapped && size_bytes >= borrow_bytes_min ? places.find(address, size_bytes) : MappedPlace{};
}

}  // namespace

Plan::Plan(std::span<const Task> tasks) {
  for (const Task& task : tasks) {
    shapes_.push_back(task.shape);
    const std::chrono::milliseconds deadline(task.shape.settings.deadline_ms);
    auto& least = execution_.deadline;
    least = deadline.count() == 0 || (least.count() != 0 && least < deadline) ? least : deadline;
  }
}

bool Plan::fits(std::span<const Task> tasks, uint64_t trial) const noexcept {
  return trial_ == trial &&
         std::equal(shapes_.begin(), shapes_.end(), tasks.begin(), tasks.end(),
                    [](const CallShape& shape, const Task& task) { return shape == task.shape; });
}

Result<std::unique_ptr<Plan>> Plan::build(const PlanContext& context,
                                          std::span<const Task> tasks,
                                          const MadeChoice* made) {
  PLEXUS_ASSERT(!tasks.empty());
  PLEXUS_ASSERT(context.rank >= 0 && context.rank < context.nranks, context.rank, context.nranks);
  std::unique_ptr<Plan> plan(new Plan(tasks));
  plan->trial_ = made == nullptr ? 0 : made->trial;
  plan->execution_.rank = context.state;
  plan->on_device_ = context.device != nullptr;
  for (size_t task = 0; task < tasks.size(); ++task) {
    if (!is_point_to_point(tasks[task].shape.collective)) {
      PLEXUS_TRY(plan->add_collective(context, tasks, task, made));
    }
  }
  PLEXUS_TRY(plan->add_to_self(context, tasks, false));
  PLEXUS_TRY(plan->add_to_self(context, tasks, true));
  PLEXUS_TRY(plan->add_point_to_point(context, tasks));
  PLEXUS_DCHECK(plan->items_.size() == plan->programs_.size() && !plan->items_.empty(),
                plan->items_.size(), plan->programs_.size());
  plan->execution_.expected = count_expected(plan->execution_);
  return plan;
}

namespace {

/// The call's own bounds of channels, within what all ranks can have.
void bound_channels(const CallSettings& settings, ChoiceInput& input) {
  if (settings.channels_max != 0) {
    input.channels_max = std::min<int>(input.channels_max, settings.channels_max);
  }
  if (settings.channels_min != 0) {
    input.channels_min = settings.channels_min;
  }
  input.channels_min = std::min(input.channels_min, input.channels_max);
}

}  // namespace

ChoiceInput input_of(const PlanContext& context, std::span<const Task> tasks, const Task& call) {
  const int nranks = context.nranks;
  const std::vector<int>& nodes = context.orders.front().nodes;
  const CallSettings& settings = call.shape.settings;
  ChoiceInput input{
      .collective = call.shape.collective,
      .size_bytes = call_bytes(call, nranks),
      .nranks = nranks,
      .root = is_rooted(call.shape.collective) ? call.shape.root : 0,
      .channels_min = context.channels_min,
      .channels_max = context.channels_max,
      .blocks = context.blocks,
      .slot_bytes = context.slot_bytes,
      .element_bytes = static_cast<uint32_t>(element_size(call.shape.datatype())),
      .calls_in_group = static_cast<uint32_t>(std::count_if(
          tasks.begin(), tasks.end(),
          [](const Task& each) { return !is_point_to_point(each.shape.collective); })),
      .in_windows = call.shape.in_windows,
      .shares_memory = context.shares_memory,
      .deterministic = context.deterministic || settings.is_deterministic,
      .selection = settings.selection,
      .is_forced = settings.is_forced,
      .has_blocks = call.shape.blocks.get() != nullptr,
      .nodes = static_cast<int>(nodes.size()),
      .ranks_per_node_max = most_ranks(nodes, nranks),
      .type = call.shape.datatype(),
      .kind = call.op.kind,
      .collnet = context.collnet,
      .costs = context.costs,
      .recorded = context.recorded};
  bound_channels(settings, input);
  return input;
}

/// The choice for a collective; told to who asked for it.
Result<Choice> Plan::choose(const PlanContext& context,
                            std::span<const Task> tasks,
                            size_t task,
                            const MadeChoice* made) {
  static const AlgorithmFilter kAll;
  const ChoiceInput input = input_of(context, tasks, tasks[task]);
  const bool explains = tasks[task].shape.settings.explains;
  if (made != nullptr && collectives_ == 0) {
    if (explains) {
      explanations_.emplace_back(task, explain_choice(made->choice, input, "what was measured"));
    }
    return made->choice;
  }
  PLEXUS_TRY(decision, decide(input, made == nullptr ? *context.filter : kAll,
                              made == nullptr ? context.tuner : nullptr));
  if (explains) {
    explanations_.emplace_back(task, explain_choice(decision, input));
  }
  return decision.candidates[decision.chosen].choice;
}

void Plan::tell(std::span<const Task> tasks) const {
  for (const auto& [task, text] : explanations_) {
    tasks[task].on_choice.function(tasks[task].on_choice.user, text.c_str());
  }
}

Result<void> Plan::add_collective(const PlanContext& context,
                                  std::span<const Task> tasks,
                                  size_t task,
                                  const MadeChoice* made) {
  const Task& call = tasks[task];
  const bool is_made = made != nullptr && collectives_ == 0;
  PLEXUS_TRY(choice, choose(context, tasks, task, made));
  PLEXUS_ASSERT(choice.algorithm != nullptr && choice.channels > 0, choice.channels);
  choice_ = made == nullptr || is_made ? choice : choice_;
  auto& queues = execution_.queues;
  // queue c < channels: the collectives of channel c, in order
  while (queues.size() < static_cast<size_t>(choice.channels)) {
    queues.push_back(std::make_unique<WorkQueue>());
  }
  for (int channel = 0; channel < choice.channels; ++channel) {
    PLEXUS_TRY(add_item(context, queues[static_cast<size_t>(channel)], call,
                        {.item = nullptr,
                         .task = task,
                         .recv_task = task,
                         .collectives_before = collectives_,
                         .is_first = channel == 0},
                        choice, channel));
  }
  ++collectives_;
  return ok();
}

/// Adds messages of the rank to itself: the k-th send is matched with the k-th receive.
Result<void> Plan::add_to_self(const PlanContext& context,
                               std::span<const Task> tasks,
                               bool of_vector) {
  std::vector<size_t> sends;
  std::vector<size_t> recvs;
  for (size_t task = 0; task < tasks.size(); ++task) {
    if (is_point_to_point(tasks[task].shape.collective) && tasks[task].shape.root == context.rank &&
        tasks[task].shape.of_vector == of_vector) {
      (tasks[task].shape.collective == Collective::kSend ? sends : recvs).push_back(task);
    }
  }
  if (sends.size() != recvs.size()) {
    return fail(
        Code::kInvalidUsage,
        "rank {} has {} sends to itself and {} receives from itself in one group: each needs its "
        "counterpart in the same group",
        context.rank, sends.size(), recvs.size());
  }
  for (size_t i = 0; i < sends.size(); ++i) {
    const Task& send = tasks[sends[i]];
    const Task& recv = tasks[recvs[i]];
    if (send.shape.count * element_size(send.shape.datatype()) !=
        recv.shape.count * element_size(recv.shape.datatype())) {
      return fail(Code::kInvalidUsage,
                  "rank {} sends {} bytes to itself and receives {}: the counts must be equal",
                  context.rank, send.shape.count * element_size(send.shape.datatype()),
                  recv.shape.count * element_size(recv.shape.datatype()));
    }
    const ChannelOrder only_me{.ring = {context.rank}, .nodes = {0}, .datacenters = {}};
    PlanContext alone = context;
    alone.nranks = 1;
    alone.orders = std::span(&only_me, 1);
    execution_.queues.push_back(std::make_unique<WorkQueue>());
    PLEXUS_TRY(add_item(
        alone, execution_.queues.back(), send,
        {.item = nullptr, .task = sends[i], .recv_task = recvs[i], .collectives_before = 0},
        only_choice(local_copy(), context, 1), 0));
  }
  return ok();
}

/// Adds one queue per peer, direction and channel: messages to one peer stay in order, and
/// different peers do not wait for each other.
Result<void> Plan::add_point_to_point(const PlanContext& context, std::span<const Task> tasks) {
  using Direction = std::tuple<Collective, int, bool, int>;  // .., peer, of a vector, channel
  std::vector<std::pair<Direction, WorkQueue*>> queues;
  for (size_t task = 0; task < tasks.size(); ++task) {
    const Task& call = tasks[task];
    if (!is_point_to_point(call.shape.collective) || call.shape.root == context.rank) {
      continue;
    }
    choice_ = only_choice(*find_algorithm(name(call.shape.collective)), context,
                          message_channels(context, call.shape));
    for (int channel = 0; channel < choice_.channels; ++channel) {
      const Direction key{call.shape.collective, call.shape.root, call.shape.of_vector, channel};
      auto at = std::find_if(queues.begin(), queues.end(),
                             [&](const auto& entry) { return entry.first == key; });
      if (at == queues.end()) {
        execution_.queues.push_back(std::make_unique<WorkQueue>());
        at = queues.insert(queues.end(), {key, &execution_.queues.back()});
      }
      PLEXUS_TRY(add_item(context, *at->second, call,
                          {.item = nullptr,
                           .task = task,
                           .recv_task = task,
                           .collectives_before = 0,
                           .is_first = channel == 0},
                          choice_, channel));
    }
  }
  return ok();
}

static const ChannelOrder& order_of(const PlanContext& context, int channel) {
  const ChannelOrder& order = context.orders[static_cast<size_t>(channel) % context.orders.size()];
  PLEXUS_ASSERT(order.ring.size() == static_cast<size_t>(context.nranks), order.ring.size(),
                context.nranks);
  return order;
}

/// Whether all ranks share memory.
static bool is_in_memory(const PlanContext& context) {
  return context.shares_memory && context.orders.front().nodes.size() == 1;
}

static PartitionInput partition_of(const PlanContext& context,
                                   const CallShape& shape,
                                   const Choice& choice,
                                   int channel) {
  return {.collective = shape.collective,
          .count = shape.count,
          .element_bytes = static_cast<uint32_t>(element_size(shape.datatype())),
          .nranks = context.nranks,
          .channel = channel,
          .channels = choice.channels,
          .slot_bytes = choice.chunk_bytes};
}

static MessageForm message_form_of(const PlanContext& context,
                                   const Choice& choice,
                                   const PartitionInput& call) {
  return message_form_of({.algorithm = choice.algorithm,
                          .protocol = choice.protocol,
                          .in_memory = is_in_memory(context),
                          .on_device = context.blocks > 0},
                         call);
}

static Program record(const PlanContext& context,
                      const CallShape& shape,
                      const Choice& choice,
                      int channel,
                      bool joins) {
  RecordInput input = record_input_of(order_of(context, channel), context.rank);
  input.root = shape.root;
  input.variant = channel % choice.algorithm->variants;
  input.heads = std::max(context.collnet->heads, 1);
  input.joins = joins;
  return program_of(*choice.algorithm, input);
}

static void divide(Work& work, const PartitionInput& part, const CallShape& shape) {
  if (shape.blocks.get() == nullptr) {
    work.geometry = compute_partition(part);
    return;
  }
  BlockedPartition made =
      compute_partition(part, shape.blocks->counts, shape.blocks->displacements);
  work.geometry = made.geometry;
  work.blocks = std::move(made.blocks);
}

Result<void> Plan::add_item(const PlanContext& context,
                            WorkQueue& queue,
                            const Task& task,
                            const ItemTask& origin,
                            const Choice& choice,
                            int channel) {
  const uint64_t output_bytes = recv_size_bytes(task.shape, context.nranks);
  PartitionInput part = partition_of(context, task.shape, choice, channel);
  part.messages = message_form_of(context, choice, part);
  Program recorded = record(context, task.shape, choice, channel, part.messages.joins);
  // Ranks whose calls are not in place have to find the same chunks.
  const int scratch_chunks = recorded.scratch_chunks;
  const bool is_staged =
      stages_input(task.shape.collective) && task.shape.in_place && context.nranks > 1;
  programs_.push_back(std::make_unique<Program>(is_staged ? stage_input(std::move(recorded))
                                                          : std::move(recorded)));
  const Program& program = *programs_.back();
  queue.items.push_back(std::make_unique<WorkQueue::Item>());
  WorkQueue::Item& item = queue.items.back();
  Work& work = item.work;
  work.program = &program;
  work.type = task.shape.datatype();
  work.element_bytes = static_cast<uint32_t>(element_size(task.shape.datatype()));
  work.reduce = find_reduce_pair(task.shape.datatype(), task.op.kind);
  work.protocol = choice.protocol;
  work.slot_bytes =
      std::min(choice.chunk_bytes, context.slot_bytes) / work.element_bytes * work.element_bytes;
  PLEXUS_ASSERT(work.reduce != nullptr || !is_reduction(task.shape.collective), work.type);
  work.keeps_input = task.shape.collective == Collective::kAllReduce && !task.shape.in_place;
  work.exchanges_empty = is_point_to_point(task.shape.collective);
  work.opens_output = task.shape.collective == Collective::kAllReduce && !program.divides_buffer &&
                      output_bytes >= kBorrowBytesMin;
  PLEXUS_DCHECK(work.slot_bytes > 0 && work.slot_bytes <= context.slot_bytes, work.slot_bytes);
  part.chunks = program.chunks;
  part.scratch_chunks = scratch_chunks;
  part.divides_buffer = program.divides_buffer;
  divide(work, part, task.shape);
  if (work.exchanges_empty) {
    work.geometry.loops = std::max(work.geometry.loops, 1U);
  }
  set_borrowing(work, task, context);
  const CopyChoice copy =
      choose_copy_method(*context.copy_methods, traits_of(shapes_, task.shape, work.geometry));
  work.attach_bytes_min = copy.attach_bytes_min;
  work.fetches = is_reduction(task.shape.collective) && work.attach_bytes_min != kNoAttach;
  maps_ = maps_ && copy.maps;
  work.streaming = output_bytes >= kStreamingBytesMin;
  if (context.device == nullptr) {
    work.scratch.resize(static_cast<size_t>(program.scratch_chunks) * work.geometry.chunk_count *
                        work.element_bytes);
  }
  item.index = first_index(task, channel);
  connect(context, item);
  const size_t lanes = context.device == nullptr ? program.lanes.size() : 0;
  PLEXUS_DCHECK(on_device_ == (context.device != nullptr));
  item.lanes.reserve(lanes);
  for (size_t lane = 0; lane < lanes; ++lane) {
    item.lanes.emplace_back(&work, static_cast<int>(lane), item.lanes.data());
  }
  items_.push_back(origin);
  items_.back().item = &item;
  work.call = record_of(task, choice);
  items_.back().shape_hash = work.call.hash;
  items_.back().input_bytes = send_size_bytes(task.shape, context.nranks);
  items_.back().output_bytes = output_bytes;
  return ok();
}

void Plan::connect(const PlanContext& context, WorkQueue::Item& item) {
  Work& work = item.work;
  const Program& program = *work.program;
  const size_t peers = program.peers.size();
  (on_device_ ? item.device_sends.resize(peers) : work.sends.resize(peers));
  (on_device_ ? item.device_recvs.resize(peers) : work.recvs.resize(peers));
  ConnectionSet& connections = *context.connections;
  const auto use = [](auto& ends, auto& end) {
    if (std::find(ends.begin(), ends.end(), &end) == ends.end()) {
      ends.push_back(&end);
    }
  };
  int index = item.index;
  const auto find_on_device = [&](int peer, bool sends) {
    DeviceEnd& end = connections.find_or_make_on_device({peer, sends, index});
    use(execution_.ends, end);
    use(execution_.device_ends, end);
    return &end;
  };
  const auto connect_send = [&](size_t i) {
    const int peer = program.peers[i];
    PLEXUS_DCHECK(peer != context.rank, peer);
    if (on_device_) {
      item.device_sends[i] = find_on_device(peer, true);
      return;
    }
    SendEnd& end = connections.find_or_make_send(peer, index);
    work.sends[i] = &end.connection();
    use(execution_.ends, end);
    borrows_mapped_ = borrows_mapped_ || connections.transport_to(peer) == TransportKind::kShm;
  };
  const auto connect_recv = [&](size_t i) {
    const int peer = program.peers[i];
    PLEXUS_DCHECK(peer != context.rank, peer);
    if (on_device_) {
      item.device_recvs[i] = find_on_device(peer, false);
      return;
    }
    RecvEnd& end = connections.find_or_make_recv(peer, index);
    work.recvs[i] = &end.connection();
    use(execution_.ends, end);
  };
  for (const Lane& lane : program.lanes) {
    index = index_of(item, lane.connection);
    bool moves = false;
    for (const Step& step : lane.steps) {
      // Without data no connection is made: neither side must wait for the other, which may have
      // left.
      moves = continues_message(lane, step) ? moves : moves_data(work, step);
      if (!moves) {
        continue;
      }
      const auto first = static_cast<size_t>(step.peers_first);
      const auto middle = first + static_cast<size_t>(step.receives);
      PLEXUS_DCHECK(middle + static_cast<size_t>(step.sends) <= peers, middle, step.sends, peers);
      for (size_t i = first; i < middle; ++i) {
        connect_recv(i);
      }
      for (size_t i = middle; i < middle + static_cast<size_t>(step.sends); ++i) {
        connect_send(i);
      }
    }
  }
}

void Plan::prepare(std::span<const Task> tasks, CallLog& log, KnownPlaces& places) {
  PLEXUS_ASSERT(tasks.size() == shapes_.size(), tasks.size(), shapes_.size());
  PLEXUS_DCHECK(!busy && execution_.finished, busy);
  for (const ItemTask& entry : items_) {
    const Task& task = tasks[entry.task];
    Work& work = entry.item->work;
    work.op = task.op;
    if (task.scalar != nullptr && !on_device_) {  // on a device the launch reads it
      work.op.load_scalar(task.scalar, task.shape.datatype());
    }
    prepare_item(entry, task.send, tasks[entry.recv_task].recv, places);
  }
  number_calls(log);
}

Result<DevicePlan*> Plan::device_plan(DeviceRank& rank, bool has_private_buffers) {
  PLEXUS_DCHECK(on_device_ && execution_.connected);
  std::unique_ptr<DevicePlan>& plan = device_plans_[has_private_buffers ? 1 : 0];
  if (plan == nullptr) {
    PLEXUS_TRY(made, DevicePlan::build(rank, execution_, has_private_buffers));
    plan = std::move(made);
  }
  return plan.get();
}

void Plan::prepare_again(const void* send, void* recv, CallLog& log, KnownPlaces& places) {
  PLEXUS_DCHECK(shapes_.size() == 1, shapes_.size());
  PLEXUS_DCHECK(!busy && execution_.finished, busy);
  for (const ItemTask& entry : items_) {
    prepare_item(entry, send, recv, places);
  }
  number_calls(log);
}

void Plan::number_calls(CallLog& log) {
  const uint64_t sequence = log.collectives();
  uint64_t message = 0;  // the number of the last one; the items of a message follow each other
  for (const ItemTask& entry : items_) {
    const Work& work = entry.item->work;
    CallRecord& call = entry.item->work.call;
    const auto collective = static_cast<Collective>(call.collective);
    if (!is_point_to_point(collective)) {
      call.sequence = sequence + entry.collectives_before;
      call.hash = hash_with_sequence(entry.shape_hash, call.sequence);
      if (entry.is_first) {
        PLEXUS_DCHECK(call.sequence == log.collectives(), call.sequence, log.collectives());
        log.note_collective(call);
      }
    } else if (!work.program->peers.empty()) {  // not a message to itself
      if (entry.is_first) {
        message = log.note_message({.peer = call.root,
                                    .sends = collective == Collective::kSend,
                                    .of_vector = call.of_vector != 0},
                                   call);
      }
      call.sequence = message;
    }
  }
  PLEXUS_DCHECK(log.collectives() == sequence + collectives_, log.collectives(), collectives_);
  execution_.calls_end = log.calls();
  execution_.arrivals = &log.arrivals();
  execution_.has_collectives = collectives_ > 0;
  execution_.collectives_end = log.collectives();
}

void Plan::prepare_item(const ItemTask& entry,
                        const void* send,
                        void* recv,
                        KnownPlaces& places) const noexcept {
  Work& work = entry.item->work;
  const bool maps = borrows_mapped_ && maps_;
  set_user_buffer(work.input, send, entry.input_bytes, maps, work.borrow_bytes_min, places);
  set_user_buffer(work.output, recv, entry.output_bytes, maps, work.borrow_bytes_min, places);
}

template <class Fits>
Plan* PlanCache::find_if(const Fits& fits) noexcept {
  const auto at = std::find_if(plans_.begin(), plans_.end(),
                               [&](const auto& plan) { return !plan->busy && fits(*plan); });
  if (at == plans_.end()) {
    return nullptr;
  }
  // Most calls repeat the last one or alternate between a few plans: move the plan to the front.
  std::rotate(plans_.begin(), at, at + 1);
  PLEXUS_DCHECK(!plans_.front()->busy);
  return plans_.front().get();
}

Plan* PlanCache::find_shape(const CallShape& shape) noexcept {
  return find_if([&](const Plan& plan) { return plan.fits(shape); });
}

void PlanCache::forget() noexcept {
  std::erase_if(plans_, [](const auto& plan) { return !plan->busy && plan->launches == 0; });
  for (const auto& plan : plans_) {  // until it has ended
    plan->shapes_.clear();
    plan->number_ = 0;
  }
}

bool PlanCache::release() noexcept {
  const bool is_free = std::all_of(plans_.begin(), plans_.end(), [](const auto& plan) {
    return !plan->busy && plan->launches == 0;
  });
  if (is_free) {
    plans_.clear();
  }
  return is_free;
}

size_t PlanCache::held_bytes() const noexcept {
  size_t sum = 0;
  for (const auto& plan : plans_) {
    for (const Plan::ItemTask& entry : plan->items_) {
      sum += entry.item->work.scratch.size();
    }
  }
  return sum;
}

Plan* PlanCache::find(std::span<const Task> tasks, uint64_t trial) noexcept {
  return find_if([&](const Plan& plan) { return plan.fits(tasks, trial); });
}

Result<Plan*> PlanCache::build(const PlanContext& context,
                               std::span<const Task> tasks,
                               const MadeChoice* made) {
  PLEXUS_TRY(plan, Plan::build(context, tasks, made));
  if (plans_.size() >= kPlansMax) {
    const auto oldest = std::find_if(plans_.rbegin(), plans_.rend(), [](const auto& each) {
      return !each->busy && each->launches == 0;
    });
    if (oldest != plans_.rend()) {
      PLEXUS_ASSERT(!(*oldest)->busy && (*oldest)->launches == 0, (*oldest)->busy);
      for (const auto& device_plan : (*oldest)->device_plans_) {
        if (device_plan != nullptr) {
          device_plan->retire(*context.device);
        }
      }
      plans_.erase(std::next(oldest).base());
    }
  }
  plan->number_ = ++nmade_;
  PLEXUS_DCHECK(!plan->busy && plan->launches == 0 && plan->execution_.finished);
  plans_.insert(plans_.begin(), std::move(plan));
  return newest();
}

}  // namespace plexus
