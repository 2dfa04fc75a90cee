// SPDX-License-Identifier: Apache-2.0
// What PLEXUS_CHECK=1 knows of buffers. Three wrong uses are found:
//   - of memory that was freed, that ends before the call's buffer does, or that is none of the
//     virtual devices': freed memory is kept for a while, so that nothing else gets its addresses;
//   - of memory that was never written: new memory is filled with a pattern that programs do not
//     send (copies of it take it along, so that only what is sent is looked at);
//   - by two pieces of work on streams of which the program has put neither before the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <span>
#include <string>

#include "core/base/result.hpp"
#include "core/comm/check_report.hpp"
#include "core/comm/stream_order.hpp"
#include "core/schedule/task.hpp"
#include "core/transport/memory/user_memory.hpp"

namespace plexus {

struct Region {
  const std::byte* begin = nullptr;
  size_t size_bytes = 0;
};

/// Who uses memory: a call of a rank, or (rank < 0) another function of the program's.
struct UserOf {
  std::string function;
  const void* caller = nullptr;
  int rank = -1;
  int nranks = 0;
};

struct BufferUse {
  Region region;
  bool writes = false;
};

/// Threads: any.
class BufferCheck {
 public:
  using Stream = const void*;  // nullptr: none, what is done is over when the function returns
  using Release = void (*)(void* data, size_t size_bytes);

  BufferCheck(CheckReport& report, const UserMemory& memory) : report_(report), memory_(memory) {}

  // -- memory --
  void note_new(void* data, size_t size_bytes);
  /// The program frees it: now, or in the order of `stream`. kInvalidArgument: it has already.
  Result<void> note_free(const UserOf& by, const Region& region, Stream stream);
  /// Takes what was freed; release() is called later. False: the caller releases it now.
  bool keep(void* data, size_t size_bytes, Release release);

  // -- work --
  /// kInvalidArgument: the buffers of a checked call cannot be used.
  Result<void> check_call(const Task& task);
  /// Calls of one communicator are about to begin, together.
  void note_calls(std::span<const Task> tasks);
  /// Looks for what was never written in the buffer that a call reads, now or when it is called.
  [[nodiscard]] std::function<void()> look_for_unwritten(const Task& task);
  /// Work is about to be put on a stream.
  void note_work(const UserOf& by, std::span<const BufferUse> uses, Stream stream);

  // -- order --
  void record(const void* event, Stream stream);
  void wait(Stream stream, const void* event);
  /// An event or a communicator is no more.
  void forget(const void* name);
  /// What comes before the next work on a stream, or before an event: for when the host has waited.
  [[nodiscard]] StreamOrder::Clock mark(const void* name);
  void end(const StreamOrder::Clock& clock);

 private:
  struct Use {
    UserOf by;
    BufferUse use;
    StreamOrder::Work work;
  };
  struct Freed {
    size_t size_bytes = 0;
    UserOf by;
  };
  struct Kept {
    void* data;
    size_t size_bytes;
    Release release;
  };
  Result<void> check_region(const Task& task, const Region& region, const char* what);
  Result<void> check_memory(const UserOf& by, int device, const Region& region, const char* what);
  void forget_freed(const Region& region);
  void compare(const UserOf& by, const BufferUse& use, Stream stream);
  void compare_in_group(std::span<const Task> tasks);
  void add(Use use);

  CheckReport& report_;
  const UserMemory& memory_;
  std::mutex mutex_;
  StreamOrder order_;    // guarded by mutex_, as all below
  std::list<Use> uses_;  // that the host has not waited for
  std::map<const std::byte*, Freed> freed_;
  std::deque<Kept> kept_;  // oldest first
  size_t kept_bytes_ = 0;
};

}  // namespace plexus
