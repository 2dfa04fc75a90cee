// SPDX-License-Identifier: Apache-2.0
#include "core/comm/one_sided_run.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <new>
#include <utility>

#include "core/base/clock.hpp"
#include "core/base/log.hpp"
#include "core/comm/group.hpp"
#include "core/comm/in_call.hpp"
#include "core/comm/lifecycle.hpp"
#include "core/comm/process.hpp"
#include "core/device/virtual_devices.hpp"

namespace plexus {
namespace {

/// The operations of one communicator.
class OneSidedRun final : public RemoteWork {
 public:
  explicit OneSidedRun(Communicator& comm) : comm_(comm), one_sided_(comm.one_sided()) {
    execution_.rank = &comm;
    execution_.remote = this;
    execution_.connected = true;
    execution_.pumps = true;  // waiting spins: what it waits for may come soon
    record_.collective = static_cast<uint8_t>(Collective::kSend);
  }
  OneSidedRun(const OneSidedRun&) = delete;
  OneSidedRun& operator=(const OneSidedRun&) = delete;

  void add(const OneSidedTask& task) {
    calls_.push_back(task.call);
    if (task.stream != nullptr) {
      streams_.push_back(task.stream);
    } else {
      has_inline_ = true;
    }
  }
  [[nodiscard]] Communicator& comm() const noexcept { return comm_; }
  [[nodiscard]] Execution& execution() noexcept { return execution_; }
  [[nodiscard]] const std::vector<HostStream*>& streams() const noexcept { return streams_; }
  [[nodiscard]] bool has_inline() const noexcept { return has_inline_; }

  Result<bool> poll() noexcept override {
    try {
      return go_on();
    } catch (const std::bad_alloc&) {
      comm_.fail_for_memory();
      return true;
    }
  }
  uint64_t take_begun() noexcept override { return 0; }
  [[nodiscard]] const CallRecord& call() const noexcept override { return record_; }

 private:
  /// Says once whom an operation waits for. The other ranks owe no call, so that there is nothing
  /// to ask them, as core/stall does.
  void look_at_clock() {
    constexpr uint32_t kLookEvery = 4096;
    const auto patience = std::chrono::seconds(comm_.setup().config.stall_s);
    if (++rounds_ % kLookEvery != 0 || patience.count() == 0 || is_warned_) {
      return;
    }
    const auto now = Clock::now();
    if (waits_since_ == Clock::time_point{} || waiting_ != current_) {
      waits_since_ = now;
      waiting_ = current_;
    } else if (now - waits_since_ > patience) {
      const OneSidedCall& call = calls_[current_];
      is_warned_ = true;
      PLEXUS_NOTIFY("rank {} has waited for {} s in {} rank {}", comm_.rank(), patience.count(),
                    call.waits.empty() ? "a put or signal to" : "ncclWaitSignal for signals of",
                    call.waits.empty() ? call.peer : call.waits.front().peer);
    }
  }

  Result<bool> go_on() {
    while (current_ < calls_.size() && !comm_.stop.load(std::memory_order_acquire)) {
      auto done = one_sided_->progress(calls_[current_], begun_);
      if (done.has_error()) {
        if (done.error().code() != Code::kInvalidArgument) {
          return done;
        }
        execution_.error = std::move(done).error();  // the call's alone
        return true;
      }
      if (!done.value()) {
        look_at_clock();
        return false;
      }
      ++current_;
      begun_ = {};
    }
    return true;
  }

  Communicator& comm_;
  std::shared_ptr<OneSided> one_sided_;
  std::vector<OneSidedCall> calls_;
  std::vector<HostStream*> streams_;
  bool has_inline_ = false;
  size_t current_ = 0;
  OneSided::Progress begun_;
  CallRecord record_{};
  uint32_t rounds_ = 0;
  Clock::time_point waits_since_{};
  size_t waiting_ = 0;  // which call has waited since then
  bool is_warned_ = false;
  Execution execution_;
};

using Runs = std::vector<std::shared_ptr<OneSidedRun>>;

Runs sort_by_comm(std::span<const OneSidedTask> tasks) {
  Runs runs;
  for (const OneSidedTask& task : tasks) {
    auto at = std::find_if(runs.begin(), runs.end(),
                           [&](const auto& run) { return &run->comm() == task.comm; });
    if (at == runs.end()) {
      at = runs.insert(at, std::make_shared<OneSidedRun>(*task.comm));
    }
    (*at)->add(task);
  }
  return runs;
}

/// Those on streams are submitted together, as they may wait for one another.
void submit(const Runs& runs) {
  Submission submission;
  for (const auto& run : runs) {
    submission.parts.push_back(
        run->comm().runner().start_submission(run->execution(), [kept = run] {}));
    for (HostStream* const stream : run->streams()) {
      if (std::find(submission.streams.begin(), submission.streams.end(), stream) ==
          submission.streams.end()) {
        submission.streams.push_back(stream);
      }
    }
  }
  if (const auto* const devices = virtual_devices(); devices != nullptr) {
    for (HostStream* const stream : submission.streams) {
      devices->before_work(reinterpret_cast<CUstream_st*>(stream));
    }
  }
  runs.front()->comm().process().async.submit(std::move(submission));
}

}  // namespace

Result<void> run_one_sided(std::span<const OneSidedTask> tasks) {
  const Runs runs = sort_by_comm(tasks);
  std::deque<InCall> inside;
  Runs on_streams;
  std::vector<Execution*> executions;
  for (const auto& run : runs) {
    if (inside.emplace_back(run->comm()).is_stopped()) {
      return describe_stop(run->comm());
    }
    if (!run->streams().empty()) {
      on_streams.push_back(run);
      continue;
    }
    run->comm().wait_submitted();
    executions.push_back(&run->execution());
  }
  if (!on_streams.empty()) {
    submit(on_streams);
  }
  if (!executions.empty()) {
    runs.front()->comm().runner().engine().run(executions);
  }
  for (const auto& run : on_streams) {
    if (run->has_inline()) {
      run->comm().wait_submitted();
      executions.push_back(&run->execution());
    }
  }
  for (Execution* const execution : executions) {
    if (execution->error.has_value()) {
      return std::move(*execution->error);
    }
  }
  return ok();
}

Result<void> enqueue_one_sided(OneSidedTask task) {
  if (Group::open()) {
    Group::current().add(std::move(task));
    return ok();
  }
  return run_one_sided({&task, 1});
}

}  // namespace plexus
