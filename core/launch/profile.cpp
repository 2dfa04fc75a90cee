// SPDX-License-Identifier: Apache-2.0
#include "core/launch/profile.hpp"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <deque>
#include <unistd.h>

#include "core/base/immortal.hpp"
#include "core/schedule/message_count.hpp"
#include "guest/assert.hpp"
#include "kernels/layout/collective.hpp"

namespace plexus {
namespace {

/// Names of collectives as NCCL gives them to profilers.
const char* function_of(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "AllReduce";
    case Collective::kBroadcast:
      return "Broadcast";
    case Collective::kReduce:
      return "Reduce";
    case Collective::kAllGather:
      return "AllGather";
    case Collective::kReduceScatter:
      return "ReduceScatter";
    case Collective::kAllToAll:
      return "AlltoAll";
    case Collective::kGather:
      return "Gather";
    case Collective::kScatter:
      return "Scatter";
    case Collective::kSend:
      return "Send";
    case Collective::kRecv:
      return "Recv";
  }
  return "?";
}

const char* protocol_of(Protocol protocol) {
  return protocol == Protocol::kSimple ? "SIMPLE" : name(protocol);
}

const char* datatype_of(DataType type) {
  switch (type) {
    case DataType::kInt8:
      return "ncclInt8";
    case DataType::kUint8:
      return "ncclUint8";
    case DataType::kInt32:
      return "ncclInt32";
    case DataType::kUint32:
      return "ncclUint32";
    case DataType::kInt64:
      return "ncclInt64";
    case DataType::kUint64:
      return "ncclUint64";
    case DataType::kFloat16:
      return "ncclFloat16";
    case DataType::kFloat32:
      return "ncclFloat32";
    case DataType::kFloat64:
      return "ncclFloat64";
    case DataType::kBfloat16:
      return "ncclBfloat16";
    case DataType::kFloat8e4m3:
      return "ncclFloat8e4m3";
    case DataType::kFloat8e5m2:
      return "ncclFloat8e5m2";
  }
  return "?";
}

/// NCCL's names of algorithms. Never freed, as NCCL's are literals: profilers may write an event
/// long after the communicator ended.
class AlgorithmNames {
 public:
  static const char* of(const Algorithm& algorithm) {
    const auto index = static_cast<size_t>(&algorithm - algorithms().data());
    return Immortal<AlgorithmNames>::instance().names_[index].c_str();
  }

 private:
  friend class Immortal<AlgorithmNames>;
  AlgorithmNames() {
    for (const Algorithm& algorithm : algorithms()) {
      std::string& name = names_.emplace_back(algorithm.family);
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    }
  }
  std::vector<std::string> names_;  // by place in algorithms()
};

/// Host ranks have no GPU clock; their time stamps are in ns of the steady clock.
uint64_t read_host_clock() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

/// Messages that the items of one execution move through one network connection, in order.
class EndTrace final : public StepObserver {
 public:
  struct Op {
    const ProfileEvent* parent;
    uint64_t messages;
    nccl_profile_proxy_op_t about;
  };
  EndTrace(ProfilerSet& profilers, int rank, ConnectionEnd& end)
      : profilers_(profilers), rank_(rank), end_(end) {}
  void add(const Op& op) { ops_.push_back(op); }
  [[nodiscard]] ConnectionEnd& end() noexcept { return end_; }

  void begin() {
    open_next();
    end_.observe(this);
  }
  /// Starts the events of the call `parent`, and those before them, that have not started.
  void start_ops_of(const ProfileEvent& parent) {
    const auto last = std::find_if(ops_.rbegin(), ops_.rend(),
                                   [&](const Op& op) { return op.parent == &parent; });
    start_ops(static_cast<size_t>(ops_.rend() - last));
  }
  void on_step(StepChange change, uint64_t bytes) override {
    switch (change) {
      case StepChange::kFilled:
        record_first(first_unsent_, NCCL_PROFILE_SEND_PEER_WAIT, 0);
        break;
      case StepChange::kSent:
        pass(NCCL_PROFILE_SEND_WAIT, bytes);
        break;
      case StepChange::kArrived:
        record_first(first_unsent_, NCCL_PROFILE_RECV_FLUSH_WAIT, bytes);
        pass(NCCL_PROFILE_RECV_GPU_WAIT, bytes);
        break;
      case StepChange::kDone:
        stop_oldest();
        break;
    }
  }
  void finish() {
    end_.observe(nullptr);
    while (!steps_.empty()) {
      stop_oldest();
    }
    for (ProfileEvent& event : events_) {
      profilers_.stop(event);
    }
  }

 private:
  /// Starts the step of the next message; after the last one of an op that is the next op's first.
  void open_next() {
    PLEXUS_DCHECK(first_unsent_ <= steps_.size() && events_.size() <= ops_.size(), first_unsent_,
                  steps_.size(), events_.size());
    while (current_ < ops_.size() && opened_ == ops_[current_].messages) {
      ++current_;
      opened_ = 0;
    }
    if (current_ == ops_.size()) {
      return;
    }
    start_ops(current_ + 1);
    nccl_profile_event_v7_t what{};
    what.type = NCCL_PROFILE_PROXY_STEP;
    what.rank = rank_;
    what.is.proxy_step.step = static_cast<int>(opened_++);
    steps_.push_back(profilers_.start(what, &events_[current_]));
    profilers_.record(steps_.back(),
                      end_.key().sends ? NCCL_PROFILE_SEND_GPU_WAIT : NCCL_PROFILE_RECV_WAIT);
  }
  /// Starts the events of the first `count` ops.
  void start_ops(size_t count) {
    while (events_.size() < count) {
      const Op& op = ops_[events_.size()];
      nccl_profile_event_v7_t what{};
      what.type = NCCL_PROFILE_PROXY_OP;
      what.rank = rank_;
      what.is.proxy_op = op.about;
      events_.push_back(profilers_.start(what, op.parent));
      profilers_.record(events_.back(), NCCL_PROFILE_OP_IN_PROGRESS);
    }
  }
  void record_first(size_t index, int state, uint64_t bytes) {
    if (index < steps_.size()) {
      profilers_.record(steps_[index], state, bytes);
    }
  }
  /// Moves on the first waiting message and starts the step of the one after it.
  void pass(int state, uint64_t bytes) {
    record_first(first_unsent_, state, bytes);
    if (first_unsent_ < steps_.size()) {
      ++first_unsent_;
      open_next();
    }
  }
  void stop_oldest() {
    if (!steps_.empty()) {
      profilers_.stop(steps_.front());
      steps_.pop_front();
      first_unsent_ -= first_unsent_ > 0 ? 1 : 0;
    }
  }

  ProfilerSet& profilers_;
  int rank_;
  ConnectionEnd& end_;
  std::vector<Op> ops_;
  size_t current_ = 0;
  uint64_t opened_ = 0;              // steps of the current op
  std::deque<ProfileEvent> events_;  // of the first ops
  std::deque<ProfileEvent> steps_;   // not stopped, oldest first
  size_t first_unsent_ = 0;          // in steps_: waits to be sent, or to arrive
};

}  // namespace

/// One run of a plan. Threads: made by the calling thread, then used by the one that executes.
class ProfiledPlan final : public ExecutionWatch {
 public:
  ProfiledPlan(Profile& profile, Plan& plan, std::span<const Task> tasks)
      : profile_(profile),
        profilers_(*profile.profilers_),
        rank_(profile.rank_),
        on_device_(plan.on_device()),
        tasks_(tasks.size()),
        apis_(tasks.size()) {
    is_inline_ = std::all_of(tasks.begin(), tasks.end(),
                             [](const Task& task) { return task.stream == nullptr; });
    start_groups(tasks);
    for (size_t task = 0; task < tasks.size(); ++task) {
      start_api(tasks[task], task);
    }
  }
  /// Also ends the events of a run that was prepared and never begun.
  ~ProfiledPlan() override { stop_all(); }
  ProfiledPlan(const ProfiledPlan&) = delete;
  ProfiledPlan& operator=(const ProfiledPlan&) = delete;

  void start_tasks(Plan& plan, std::span<const Task> tasks, uint64_t sequence) {
    note_channels(plan);
    for (size_t task = 0; task < tasks.size(); ++task) {
      start_task(plan, tasks[task], task, sequence);
    }
    trace_ends(plan);
    if (!is_inline_ && !on_device_) {
      stop_apis();  // the calls return when the work is on its streams
    }
  }

  void on_launch(void* stream, const uint64_t* times) noexcept override {
    auto what = about(NCCL_PROFILE_KERNEL_LAUNCH);
    what.is.kernel_launch.stream = stream;
    ProfileEvent launch = profilers_.start(what, &group_api_);
    profilers_.stop(launch);
    times_ = times;
    if (times == nullptr) {  // a graph: nobody knows how often it runs
      traces_.clear();
      stop_tasks();
    }
    stop_apis();
  }
  void on_begin() noexcept override { profile_.enter(*this); }
  void begin_messages() {
    for (const auto& trace : traces_) {
      trace->begin();
    }
  }
  void on_item_begin(const WorkQueue::Item& item) noexcept override {
    for (Channel& channel : channels_) {
      if (channel.item == &item) {
        start_channel(channel, read_host_clock());
      }
    }
  }
  void on_item_end(const WorkQueue::Item& item) noexcept override {
    for (Channel& channel : channels_) {
      if (channel.item == &item) {
        end_channel(channel, read_host_clock());
      }
    }
  }
  void on_end() noexcept override {
    for (const auto& trace : traces_) {
      trace->finish();
    }
    tell_kernels();
    profile_.leave(*this);
    stop_all();
  }

 private:
  struct ProfiledTask {
    ProfileEvent event;
    uint8_t channels = 0;       // of all its work
    uint8_t channels_open = 0;  // whose work is not done
  };
  /// A kernel channel of a task: of a host rank an item of its work, of a CUDA rank a queue of
  /// blocks with work of it.
  struct Channel {
    const WorkQueue::Item* item;  // of a CUDA rank the first of the task in its queue
    size_t queue;
    size_t task;
    uint8_t number;  // among those of the task: profilers expect 0 to the number of channels - 1
    ProfileEvent event;
  };
  void note_channels(Plan& plan) {
    size_t number = 0;
    for (const WorkQueue& queue : plan.execution().queues) {
      for (const WorkQueue::Item& each : queue.items) {
        const auto item =
            std::find_if(plan.items().begin(), plan.items().end(),
                         [&](const Plan::ItemTask& found) { return found.item == &each; });
        PLEXUS_DCHECK(item != plan.items().end(), number);
        note_channel(each, number, item->task);
        if (item->recv_task != item->task) {  // a message to itself
          note_channel(each, number, item->recv_task);
        }
      }
      ++number;
    }
  }
  void note_channel(const WorkQueue::Item& item, size_t queue, size_t task) {
    const bool is_noted =
        on_device_ && std::any_of(channels_.begin(), channels_.end(), [&](const Channel& each) {
          return each.queue == queue && each.task == task;
        });
    if (!is_noted) {
      channels_.push_back({&item, queue, task, tasks_[task].channels++, {}});
      ++tasks_[task].channels_open;
    }
  }
  void start_channel(Channel& channel, uint64_t time) noexcept {
    auto what = about(NCCL_PROFILE_KERNEL_CHANNEL);
    what.is.kernel_channel = {channel.number, time};
    channel.event = profilers_.start(what, &tasks_[channel.task].event);
  }
  void stop_channel(Channel& channel, uint64_t time) noexcept {
    profilers_.record(channel.event, NCCL_PROFILE_KERNEL_CHANNEL_STOP, time);
    profilers_.stop(channel.event);
  }
  /// The work of the channel is done. A task stops before the last of its channels: NCCL stops it
  /// when it is launched, and profilers take the last channel's stop for the end of everything.
  void end_channel(Channel& channel, uint64_t time) noexcept {
    PLEXUS_DCHECK(tasks_[channel.task].channels_open > 0, channel.task);
    if (--tasks_[channel.task].channels_open == 0) {
      for (const auto& trace : traces_) {
        trace->start_ops_of(tasks_[channel.task].event);  // none starts after its parent's stop
      }
      profilers_.stop(tasks_[channel.task].event);
    }
    stop_channel(channel, time);
  }
  /// The kernel has ended and left its times.
  void tell_kernels() noexcept {
    for (Channel& channel : channels_) {
      if (times_ != nullptr) {
        start_channel(channel, read_time(2 * channel.queue));
        end_channel(channel, read_time(2 * channel.queue + 1));
      }
    }
    times_ = nullptr;
  }
  [[nodiscard]] uint64_t read_time(size_t index) const {
    return __atomic_load_n(times_ + index, __ATOMIC_RELAXED);  // the kernel wrote it before its end
  }

  [[nodiscard]] nccl_profile_event_v7_t about(uint64_t type) const {
    nccl_profile_event_v7_t what{};
    what.type = type;
    what.rank = rank_;
    return what;
  }
  void start_groups(std::span<const Task> tasks) {
    auto what = about(NCCL_PROFILE_GROUP_API);
    what.is.group_api.depth = tasks.size() > 1 ? 1 : 0;
    group_api_ = profilers_.start(what, nullptr);
    profilers_.record(group_api_, NCCL_PROFILE_GROUP_START_DONE);
    profilers_.record(group_api_, NCCL_PROFILE_GROUP_END_BEGIN);
    group_ = profilers_.start(about(NCCL_PROFILE_GROUP), nullptr);
  }
  [[nodiscard]] void* stream_of(const Task& task) const {
    return on_device_ ? static_cast<void*>(task.device_stream) : static_cast<void*>(task.stream);
  }
  void start_api(const Task& task, size_t index) {
    if (is_point_to_point(task.shape.collective)) {
      auto what = about(NCCL_PROFILE_P2P_API);
      what.is.p2p_api.v5 = {function_of(task.shape.collective), task.shape.count,
                            datatype_of(task.shape.datatype()), stream_of(task), false};
      apis_[index] = profilers_.start(what, &group_api_);
    } else {
      auto what = about(NCCL_PROFILE_COLL_API);
      what.is.coll_api.v5 = {function_of(task.shape.collective),
                             task.shape.count,
                             datatype_of(task.shape.datatype()),
                             task.shape.root,
                             stream_of(task),
                             false};
      what.is.coll_api.user_tag = task.tag;
      apis_[index] = profilers_.start(what, &group_api_);
    }
  }
  void start_task(Plan& plan, const Task& task, size_t index, uint64_t sequence) {
    const uint8_t channels = tasks_[index].channels;
    if (is_point_to_point(task.shape.collective)) {
      auto what = about(NCCL_PROFILE_P2P);
      const bool sends = task.shape.collective == Collective::kSend;
      // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): profilers only look at the address
      void* const buffer = sends ? const_cast<void*>(task.send) : task.recv;
      what.is.p2p.v5 = {function_of(task.shape.collective),
                        buffer,
                        datatype_of(task.shape.datatype()),
                        task.shape.count,
                        task.shape.root,
                        channels,
                        nullptr};
      tasks_[index].event = profilers_.start(what, &apis_[index], &group_);
      return;
    }
    const char* algorithm = "";
    const char* protocol = "";
    for (const Plan::ItemTask& item : plan.items()) {
      if (item.task == index) {
        const CallRecord& call = item.item->work.call;
        sequence = call.sequence;
        protocol = protocol_of(item.item->work.protocol);
        algorithm =
            call.algorithm > 0 ? AlgorithmNames::of(algorithms()[call.algorithm - size_t{1}]) : "";
      }
    }
    auto what = about(NCCL_PROFILE_COLL);
    what.is.coll.v5.v4 = {
        sequence,        function_of(task.shape.collective), task.send, task.recv, task.shape.count,
        task.shape.root, datatype_of(task.shape.datatype()), channels,  1,         algorithm,
        protocol};
    what.is.coll.user_tag = task.tag;
    tasks_[index].event = profilers_.start(what, &apis_[index], &group_);
  }
  /// Ends all events that have not ended. A second call does nothing.
  void stop_all() noexcept {
    stop_tasks();
    for (Channel& channel : channels_) {  // of items that did not come to their end
      stop_channel(channel, read_host_clock());
    }
    stop_apis();
  }
  void stop_tasks() {
    for (ProfiledTask& task : tasks_) {
      profilers_.stop(task.event);
    }
    profilers_.stop(group_);
  }
  void stop_apis() {
    for (ProfileEvent& api : apis_) {
      profilers_.stop(api);
    }
    profilers_.stop(group_api_);
  }
  /// One proxy op for each item of work and network connection that it uses.
  void trace_ends(Plan& plan) {
    if (!profilers_.wants(NCCL_PROFILE_PROXY_OP)) {
      return;
    }
    for (ConnectionEnd* const end : plan.execution().ends) {
      if (!end->has_pump()) {
        continue;
      }
      auto trace = std::make_unique<EndTrace>(profilers_, rank_, *end);
      for (const Plan::ItemTask& item : plan.items()) {
        const Work& work = item.item->work;
        const uint64_t messages = count_messages(*item.item, end->key());
        if (messages > 0) {
          trace->add({&tasks_[item.task].event,
                      messages,
                      {getpid(), static_cast<uint8_t>(end->key().index % kIndexStride / 2),
                       end->key().peer, static_cast<int>(messages),
                       static_cast<int>(work.slot_bytes), end->key().sends ? 1 : 0}});
        }
      }
      traces_.push_back(std::move(trace));
    }
  }

  Profile& profile_;
  ProfilerSet& profilers_;
  int rank_;
  bool on_device_;
  bool is_inline_;
  std::vector<Channel> channels_;
  const uint64_t* times_ = nullptr;
  ProfileEvent group_api_;
  ProfileEvent group_;
  std::vector<ProfiledTask> tasks_;
  std::vector<ProfileEvent> apis_;
  std::vector<std::unique_ptr<EndTrace>> traces_;
};

Profile::Profile(std::unique_ptr<ProfilerSet> profilers, int rank)
    : profilers_(std::move(profilers)), rank_(rank) {}

Profile::~Profile() = default;

void Profile::prepare(Plan& plan, std::span<const Task> tasks, uint64_t sequence) {
  auto run = std::make_shared<ProfiledPlan>(*this, plan, tasks);
  run->start_tasks(plan, tasks, sequence);
  plan.execution().watch = std::move(run);
}

void Profile::enter(ProfiledPlan& run) {
  const std::lock_guard lock(mutex_);
  PLEXUS_DCHECK(std::find(under_way_.begin(), under_way_.end(), &run) == under_way_.end());
  under_way_.push_back(&run);
  if (under_way_.size() == 1) {
    run.begin_messages();
  }
}

void Profile::leave(ProfiledPlan& run) {
  const std::lock_guard lock(mutex_);
  const bool was_first = !under_way_.empty() && under_way_.front() == &run;
  const size_t erased = std::erase(under_way_, &run);
  PLEXUS_DCHECK(erased == 1, erased);
  if (was_first && !under_way_.empty()) {
    under_way_.front()->begin_messages();
  }
}

}  // namespace plexus
