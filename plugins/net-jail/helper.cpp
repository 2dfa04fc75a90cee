// SPDX-License-Identifier: Apache-2.0
// plexus-jail PARENT PLUGIN: the process in which net-jail runs a net plugin. Its descriptors 3 and
// 4 are the segments of protocol.hpp. One thread calls the plugin, so that the function that ends
// or blocks it is known; another one ends the process with its parent.
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <poll.h>
#include <sys/mman.h>
#include <thread>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "core/plugin/net_plugin.hpp"
#include "core/plugin/registry.hpp"
#include "guest/thread.hpp"
#include "plugins/net-jail/protocol.hpp"

struct plexus_log_sink {};

namespace plexus::net_jail {
namespace {

template <class T>
T* as(uint64_t address) {
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr): the host's number
}
template <class T>
uint64_t number_of(T* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

/// A memory of the host's: its copy, with a page that is not there on both sides.
class Memory {
 public:
  Memory(uint64_t place, uint64_t size) : bytes_(page_bytes(size)) {
    reserved_ =
        ::mmap(nullptr, bytes_ + 2 * kPageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (reserved_ != MAP_FAILED) {
      data_ =
          ::mmap(static_cast<std::byte*>(reserved_) + kPageBytes, bytes_, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED, kDataFd, static_cast<off_t>(place));
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (reserved_ != MAP_FAILED) {
      ::munmap(reserved_, bytes_ + 2 * kPageBytes);
    }
  }
  [[nodiscard]] bool is_there() const { return data_ != MAP_FAILED; }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }

  plexus_net_memory_t* inner = nullptr;

 private:
  uint64_t bytes_;
  void* reserved_ = MAP_FAILED;
  void* data_ = MAP_FAILED;
};

class Helper {
 public:
  Helper(Words& words, const char* plugin) : words_(words), name_(plugin) {}

  [[noreturn]] void serve() {
    Spin spin;
    for (;;) {
      const uint32_t heard = words_.bell.load();
      bool has_moved = false;
      if (words_.call.state.load() == kPosted) {
        carry_out(words_.call);
        has_moved = true;
      }
      has_moved = test_all() || has_moved;
      if (has_moved) {
        spin.restart();
      } else if (!spin.turn()) {
        sleep(heard);
      }
    }
  }

 private:
  struct Started {
    plexus_net_request_t* inner;
    uint64_t owner;
    uint32_t index;
  };

  void sleep(uint32_t heard) {
    constexpr long kBusyNanoseconds = 1'000'000;  // some plugins keep peers alive in test
    constexpr long kIdleNanoseconds = 500'000'000;
    words_.is_asleep.store(1);
    if (words_.call.state.load() != kPosted) {
      sleep_on(words_.bell, heard, started_.empty() ? kIdleNanoseconds : kBusyNanoseconds);
    }
    words_.is_asleep.store(0);
  }

  /// Runs a function of the plugin, so that the host sees in which one the process is.
  template <class Run>
  auto in(Entry entry, const Run& run) {
    error_.clear();
    words_.entry.store(static_cast<uint32_t>(entry), std::memory_order_relaxed);
    words_.entered.fetch_add(1);
    auto result = run();
    words_.entry.store(0);
    return result;
  }
  template <class Run>
  int32_t in_void(Entry entry, const Run& run) {
    return in(entry, [&] {
      run();
      return PLEXUS_OK;
    });
  }

  void carry_out(Call& call) {
    const int32_t code = dispatch(call);
    call.code = code;
    write_text(call.text, error_);
    call.state.store(kDone);
    if (call.is_awaited.load() != 0) {
      wake(call.state);
    }
    if (call.entry == Entry::kFinalize) {
      ::_exit(0);
    }
  }

  int32_t load() {
    const auto loaded = in(Entry::kLoad, [&] {
      NetPluginOptions options;
      for (const auto& [name, value] : {std::pair{"PLEXUS_PLUGIN_PATH", &options.folders},
                                        std::pair{"PLEXUS_NET_ABI", &options.load.abi},
                                        std::pair{"PLEXUS_NET_V11", &options.load.v11}}) {
        const char* const text = ask(name);
        *value = text == nullptr ? "" : text;
      }
      return load_net_plugin(options, name_);
    });
    if (loaded.has_error()) {
      error_ = loaded.error().message();
      return static_cast<int32_t>(loaded.error().code());
    }
    plugin_ = loaded.value();
    ops_ = plugin_->ops();
    return PLEXUS_OK;
  }

  int32_t init(const Call& call) {
    if (const int32_t code = load(); code != PLEXUS_OK) {
      return code;
    }
    const plexus_net_config_t config = {
        .struct_size = sizeof(plexus_net_config_t),
        .traffic_class = call.traffic_class,
        .comm_id = call.comm_id,
        .log = [](plexus_log_sink_t*, int32_t level, const char*, int32_t,
                  const char* text) { instance->log(level, text == nullptr ? "" : text); },
        .log_sink = &sink_,
        .setting = [](plexus_log_sink_t*, const char* name) { return instance->ask(name); },
    };
    instance = this;
    return in(Entry::kInit, [&] { return plugin_->init(&config, &context_); });
  }

  void log(int32_t level, const char* text) {
    if (level == PLEXUS_LOG_ERROR && std::this_thread::get_id() == thread_) {
      error_ = text;
      return;
    }
    const std::scoped_lock lock(lines_);
    const uint32_t written = words_.lines_written.load();
    if (level < PLEXUS_LOG_TRACE && written - words_.lines_read.load() < kLinesMax) {
      Line& line = words_.lines[written % kLinesMax];
      line.level = level;
      write_text(line.text, text);
      words_.lines_written.store(written + 1);
    }
  }

  /// The host's value of a setting; it can be asked only while it waits for a call.
  const char* ask(const char* name) {
    Call& call = words_.call;
    if (name == nullptr || std::this_thread::get_id() != thread_ || call.state.load() != kPosted) {
      return name == nullptr ? nullptr : std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
    }
    const Entry entry = call.entry;
    write_text(call.text, name);
    call.state.store(kAsks);
    wake(call.state);
    while (call.state.load() == kAsks) {
      constexpr long kNapNanoseconds = 100'000'000;
      sleep_on(call.state, kAsks, kNapNanoseconds);
    }
    call.entry = entry;
    const char* value = nullptr;
    if (call.has_text != 0) {
      answers_.push_back(read_text(call.text));  // valid until finalize has returned
      value = answers_.back().c_str();
    }
    call.state.store(kPosted);
    return value;
  }

  int32_t dispatch(Call& call) {
    switch (call.entry) {
      case Entry::kInit:
        return init(call);
      case Entry::kFinalize:
        return in_void(call.entry, [&] { ops_.finalize(context_); });
      case Entry::kDeviceCount:
        return in(call.entry, [&] { return ops_.device_count(context_, &call.device); });
      case Entry::kProperties: {
        plexus_net_properties_t properties{};
        const uint32_t device = call.device;
        const int32_t code =
            in(call.entry, [&] { return ops_.properties(context_, device, &properties); });
        call.properties = properties;
        return code;
      }
      case Entry::kListen:
      case Entry::kConnect:
      case Entry::kAccept:
        return make_end(call);
      case Entry::kRegisterSend:
      case Entry::kRegisterRecv:
        return register_memory(call);
      case Entry::kDeregister:
        return deregister(call.object);
      case Entry::kIsend:
      case Entry::kIrecv:
        return start(call);
      case Entry::kNetPath:
        return net_path(call);
      default:
        return close(call.entry, call.object);
    }
  }

  int32_t make_end(Call& call) {
    int32_t code = PLEXUS_INTERNAL_ERROR;
    const uint32_t device = call.device;
    if (call.entry == Entry::kListen) {
      plexus_net_handle_t handle{};
      plexus_net_listen_t* listen = nullptr;
      code = in(call.entry, [&] { return ops_.listen(context_, device, &handle, &listen); });
      call.handle = handle;
      call.made = number_of(listen);
    } else if (call.entry == Entry::kConnect) {
      const plexus_net_handle_t handle = call.handle;
      auto* send = as<plexus_net_send_t>(call.made);
      code = in(call.entry, [&] { return ops_.connect(context_, device, &handle, &send); });
      call.made = number_of(send);
    } else {
      auto* recv = as<plexus_net_recv_t>(call.made);
      auto* const listen = as<plexus_net_listen_t>(call.object);
      code = in(call.entry, [&] { return ops_.accept(listen, &recv); });
      call.made = number_of(recv);
    }
    return code;
  }

  int32_t register_memory(Call& call) {
    auto memory = std::make_unique<Memory>(call.source, call.target);
    if (!memory->is_there()) {
      error_ = "net-jail: the helper cannot map memory to register";
      return PLEXUS_SYSTEM_ERROR;
    }
    const plexus_net_region_t region = {.data = memory->data(),
                                        .size_bytes = call.target,
                                        .dmabuf_offset_bytes = 0,
                                        .dmabuf_fd = -1,
                                        .kind = PLEXUS_MEMORY_HOST};
    const uint64_t end = call.object;
    const int32_t code = in(call.entry, [&] {
      return call.entry == Entry::kRegisterSend
                 ? ops_.register_send(as<plexus_net_send_t>(end), &region, &memory->inner)
                 : ops_.register_recv(as<plexus_net_recv_t>(end), &region, &memory->inner);
    });
    call.made = code == PLEXUS_OK ? number_of(memory.release()) : 0;
    return code;
  }

  int32_t deregister(uint64_t object) {
    const std::unique_ptr<Memory> memory(as<Memory>(object));
    return memory->inner == nullptr
               ? PLEXUS_OK
               : in(Entry::kDeregister, [&] { return ops_.deregister(memory->inner); });
  }

  int32_t start(Call& call) {
    std::array<plexus_net_buffer_t, PLEXUS_NET_RECVS_MAX> buffers{};
    for (uint32_t i = 0; i < call.count; ++i) {
      const Part& part = call.parts[i];
      const auto* const memory = as<Memory>(part.memory);
      buffers[i] = {memory == nullptr ? nullptr : memory->data() + part.offset_bytes,
                    part.size_bytes, memory == nullptr ? nullptr : memory->inner, part.tag, 0};
    }
    plexus_net_request_t* request = nullptr;
    const uint32_t count = call.count;
    const plexus_net_buffer_t& first = buffers[0];
    const int32_t code = in(call.entry, [&] {
      return call.entry == Entry::kIsend
                 ? ops_.isend(as<plexus_net_send_t>(call.object), first.data, first.size_bytes,
                              first.tag, first.memory, &request)
                 : ops_.irecv(as<plexus_net_recv_t>(call.object), count, buffers.data(), &request);
    });
    if (code == PLEXUS_OK && request == nullptr) {
      error_ = "net-jail: the plugin started nothing and did not say so";
      return PLEXUS_INTERNAL_ERROR;
    }
    if (code == PLEXUS_OK) {
      started_.push_back({request, call.object, call.request});
    }
    return code;
  }

  /// Tests every request once; whether any ended.
  bool test_all() {
    const size_t before = started_.size();
    for (size_t i = 0; i < started_.size();) {
      Request& request = words_.requests[started_[i].index];
      std::array<uint64_t, PLEXUS_NET_RECVS_MAX> sizes{};
      const int32_t code =
          in(Entry::kTest, [&] { return ops_.test(started_[i].inner, sizes.data()); });
      if (code == PLEXUS_AGAIN) {
        ++i;
        continue;
      }
      request.code = code;
      request.sizes_bytes = sizes;
      write_text(request.text, error_);
      request.state.store(kDone, std::memory_order_release);
      started_.erase(started_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return started_.size() != before;
  }

  int32_t close(Entry entry, uint64_t object) {
    std::erase_if(started_, [&](const Started& each) { return each.owner == object; });
    return in_void(entry, [&] {
      if (entry == Entry::kCloseSend) {
        ops_.close_send(as<plexus_net_send_t>(object));
      } else if (entry == Entry::kCloseRecv) {
        ops_.close_recv(as<plexus_net_recv_t>(object));
      } else {
        ops_.close_listen(as<plexus_net_listen_t>(object));
      }
    });
  }

  int32_t net_path(Call& call) {
    plexus_net_path_t path = {
        .level = call.source == call.target ? PLEXUS_NET_LEVEL_SAME_DC : PLEXUS_NET_LEVEL_UNKNOWN,
        .loss_per_billion = PLEXUS_UNKNOWN_U32,
        .bandwidth_mbit_per_s = PLEXUS_UNKNOWN_U64,
        .latency_ns = PLEXUS_UNKNOWN_U64,
        .cost = PLEXUS_UNKNOWN_U64,
        .reserved = {}};
    const int32_t code = ops_.net_path == nullptr ? PLEXUS_OK : in(Entry::kNetPath, [&] {
      return ops_.net_path(context_, call.source, call.target, &path);
    });
    call.path = path;
    return code;
  }

  // The plugin's callbacks may come without the sink of ours, so they use this.
  static inline Helper* instance = nullptr;  // NOLINT(*-avoid-non-const-global-variables)
  Words& words_;
  std::string name_;
  std::thread::id thread_ = std::this_thread::get_id();
  std::shared_ptr<const NetPlugin> plugin_;
  plexus_net_ops_t ops_{};
  plexus_net_context_t* context_ = nullptr;
  plexus_log_sink_t sink_;
  std::string error_;  // the reason that the plugin gave last in this function
  std::deque<std::string> answers_;
  std::vector<Started> started_;
  std::mutex lines_;
};

int run(pid_t parent, const char* plugin) {
  ::close_range(kDataFd + 1, ~0u, 0);
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, parent, 0));
  if (fd < 0 || ::getppid() != parent) {
    return 1;  // it has ended already
  }
  make_guest_thread([fd] {
    pollfd ended = {.fd = fd, .events = POLLIN, .revents = 0};
    while (::poll(&ended, 1, -1) != 1) {
    }
    ::_exit(0);
  }).detach();
  void* const words =
      ::mmap(nullptr, sizeof(Words), PROT_READ | PROT_WRITE, MAP_SHARED, kWordsFd, 0);
  if (words == MAP_FAILED) {
    return 1;
  }
  ::close(kWordsFd);
  ::fcntl(kDataFd, F_SETFD, FD_CLOEXEC);
  Helper(*static_cast<Words*>(words), plugin).serve();
}

}  // namespace
}  // namespace plexus::net_jail

int main(int count, char** arguments) {
  constexpr int kArguments = 3;
  if (count != kArguments) {
    std::fputs("plexus-jail is started by net-jail (NCCL_NET_PLUGIN=NAME?isolate=1)\n", stderr);
    return 2;
  }
  constexpr int kDecimal = 10;
  return plexus::net_jail::run(static_cast<pid_t>(std::strtol(arguments[1], nullptr, kDecimal)),
                               arguments[2]);
}
