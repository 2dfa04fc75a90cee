// SPDX-License-Identifier: Apache-2.0
// What the host and its helper process share: one segment of words, in which the host makes one
// call at a time and polls any number of requests, and one of data, in which every registered
// memory has a copy. The host believes nothing that the helper writes: numbers are checked against
// its own, texts are cut, addresses of the helper are passed back and never used.
//
//   host    fills Call, state = kPosted, rings `bell` > waits for state == kDone
//   helper  calls the plugin > fills Call, state = kDone; tests all started requests by itself and
//           sets Request::state, which is what the host's test() reads
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <linux/futex.h>
#include <sched.h>
#include <string>
#include <string_view>
#include <sys/syscall.h>
#include <unistd.h>

#include "plugin-api/plexus_net.h"

namespace plexus::net_jail {

/// What the helper is in; the names are those that users see.
enum class Entry : uint32_t {
  kNone,
  kLoad,
  kInit,
  kFinalize,
  kDeviceCount,
  kProperties,
  kListen,
  kConnect,
  kAccept,
  kRegisterSend,
  kRegisterRecv,
  kDeregister,
  kIsend,
  kIrecv,
  kTest,
  kCloseSend,
  kCloseRecv,
  kCloseListen,
  kNetPath,
};
constexpr std::array<const char*, 19> kEntryNames = {"no function",   "the loading of its library",
                                                     "init",          "finalize",
                                                     "device_count",  "properties",
                                                     "listen",        "connect",
                                                     "accept",        "register_send",
                                                     "register_recv", "deregister",
                                                     "isend",         "irecv",
                                                     "test",          "close_send",
                                                     "close_recv",    "close_listen",
                                                     "net_path"};
[[nodiscard]] inline const char* name_of(uint32_t entry) {
  return entry < kEntryNames.size() ? kEntryNames[entry] : kEntryNames[0];
}

constexpr uint32_t kRequestsMax = 1024;  // of a context
constexpr uint32_t kLinesMax = 64;
constexpr size_t kTextBytes = 1024;
constexpr int kWordsFd = 3;  // of the helper
constexpr int kDataFd = 4;

enum CallState : uint32_t { kIdle, kPosted, kAsks, kAnswered, kDone };

/// A buffer: its place in the copy of a registered memory.
struct Part {
  uint64_t memory;  // what registering made; 0: none, and no bytes
  uint64_t offset_bytes;
  uint64_t size_bytes;
  int32_t tag;
};

struct Call {
  std::atomic<uint32_t> state;
  std::atomic<uint32_t> is_awaited;  // the host sleeps on `state`
  Entry entry;
  int32_t code;
  uint32_t device;   // and the count of device_count
  uint32_t request;  // of isend and irecv
  uint32_t count;    // of parts
  int32_t traffic_class;
  uint64_t comm_id;
  uint64_t object;  // what is used; addresses of the helper
  uint64_t made;    // what was made
  uint64_t source;  // fabrics; the place of a memory in the data segment
  uint64_t target;  // and its size
  std::array<Part, PLEXUS_NET_RECVS_MAX> parts;
  plexus_net_handle_t handle;
  plexus_net_properties_t properties;
  plexus_net_path_t path;
  std::array<char, kTextBytes> text;  // reason of a failure; name or value of a setting
  uint32_t has_text;                  // the setting is set
};

struct Request {
  std::atomic<uint32_t> state;  // kPosted, kDone
  int32_t code;
  std::array<uint64_t, PLEXUS_NET_RECVS_MAX> sizes_bytes;
  std::array<char, kTextBytes> text;
};

struct Line {
  int32_t level;
  std::array<char, kTextBytes> text;
};

struct Words {
  std::atomic<uint32_t> bell;       // the host has something to do for the helper
  std::atomic<uint32_t> is_asleep;  // the helper sleeps on `bell`
  std::atomic<uint32_t> entry;      // the function that the helper is in
  std::atomic<uint64_t> entered;    // number of functions that it was in
  std::atomic<uint32_t> lines_written;
  std::atomic<uint32_t> lines_read;
  std::array<Line, kLinesMax> lines;
  Call call;
  std::array<Request, kRequestsMax> requests;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

template <size_t kBytes>
void write_text(std::array<char, kBytes>& place, std::string_view text) {
  const size_t size = std::min(text.size(), kBytes - 1);
  std::memcpy(place.data(), text.data(), size);
  place[size] = '\0';
}
template <size_t kBytes>
std::string read_text(const std::array<char, kBytes>& place) {
  return {place.data(), ::strnlen(place.data(), kBytes - 1)};
}

/// Sleeps while `word` is `value`, for at most so long.
inline void sleep_on(std::atomic<uint32_t>& word, uint32_t value, long nanoseconds) {
  const timespec limit = {.tv_sec = 0, .tv_nsec = nanoseconds};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &limit, nullptr, 0);
}
inline void wake(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

/// Turns of a waiting loop: short ones first, then those that let others run.
class Spin {
 public:
  /// False: it is time to sleep.
  bool turn() {
    constexpr unsigned kPauses = 200;
    constexpr unsigned kYields = 40;
    if (++turns_ <= kPauses) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    } else if (turns_ <= kPauses + kYields) {
      ::sched_yield();
    } else {
      return false;
    }
    return true;
  }
  void restart() { turns_ = 0; }

 private:
  unsigned turns_ = 0;
};

/// The place of a memory of so many bytes in the data segment: whole pages.
constexpr uint64_t kPageBytes = 4096;
[[nodiscard]] constexpr uint64_t page_bytes(uint64_t size_bytes) {
  return (size_bytes + kPageBytes) / kPageBytes * kPageBytes;  // with at least one spare byte
}

}  // namespace plexus::net_jail
