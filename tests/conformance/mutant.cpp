// SPDX-License-Identifier: Apache-2.0
// Intentionally wrong: net-socket with the fault that PLEXUS_MUTANT names. The table is the wrapped
// plugin's with some entries replaced; handles are the wrapped plugin's own. mutants_test.py says
// which check must detect which mutant. Without PLEXUS_MUTANT it is correct.
#include "tests/conformance/mutant.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "tests/support/load_descriptor.hpp"

namespace {

using std::chrono::milliseconds;

const plexus_plugin_t& wrapped() {
  static const auto& kWrapped = plexus::test::load_descriptor<plexus_plugin_t>(
      std::getenv("PLEXUS_MUTANT_OF"), "plexus_plugin_query");
  return kWrapped;
}
const plexus_net_ops_t& inner() { return *wrapped().net; }

plexus_log_fn say = nullptr;
plexus_log_sink_t* sink = nullptr;
std::atomic<int> count{0};
plexus_net_context_t* shared_context = nullptr;
std::atomic<void*> last_data{nullptr};
std::atomic<bool> is_sending{false};

/// Faults of plugins that support dma-bufs, which the wrapper then claims for memory that it maps.
bool is_with_dmabuf() {
  const char* const chosen = std::getenv("PLEXUS_MUTANT");
  return chosen != nullptr && std::string_view(chosen).starts_with("dmabuf_");
}

/// Faults of plugins of short messages.
constexpr uint64_t kShortMessage = 4096;
bool is_of_short_messages() {
  const char* const chosen = std::getenv("PLEXUS_MUTANT");
  return chosen != nullptr && std::string_view(chosen).starts_with("short_");
}
/// Whether it refuses a message of `size_bytes`: the right one, one that is longer than it says;
/// one that `forgets` its own header, also some that are shorter.
bool is_too_long(uint64_t size_bytes, bool forgets) {
  constexpr uint64_t kHeader = 16;
  const bool is_long =
      is_of_short_messages() && size_bytes > kShortMessage - (forgets ? kHeader : 0);
  if (is_long) {
    say(sink, PLEXUS_LOG_ERROR, __FILE__, __LINE__, "mutant: the message is too long");
  }
  return is_long;
}

void sleep_ms(int time) { std::this_thread::sleep_for(milliseconds(time)); }

int32_t init(const plexus_net_config_t* config, plexus_net_context_t** context) {
  say = config->log;
  sink = config->log_sink;
  if (is_mutant("init_handler")) {
    std::signal(SIGTERM, SIG_IGN);
  }
  if (is_mutant("init_environment")) {
    setenv("PLEXUS_MUTANT_WAS_HERE", "1", 1);
  }
  if (is_mutant("init_prints")) {
    std::puts("mutant: hello");
    std::fflush(stdout);
  }
  if (is_mutant("init_leaks_descriptor")) {
    if (open("/dev/null", O_RDONLY | O_CLOEXEC) < 0) {
      return PLEXUS_SYSTEM_ERROR;
    }
  }
  if (is_mutant("init_leaks_thread")) {
    std::thread([] { std::this_thread::sleep_for(std::chrono::hours(1)); }).detach();
  }
  if (is_mutant("init_leaks_memory")) {
    static std::vector<std::vector<char>> kept;
    kept.emplace_back(10000);
  }
  if (is_mutant("init_warns")) {
    say(sink, PLEXUS_LOG_WARN, __FILE__, __LINE__, "mutant: all is well");
  }
  if (is_mutant("init_newline")) {
    say(sink, PLEXUS_LOG_INFO, __FILE__, __LINE__, "mutant: a line\n");
  }
  if (is_mutant("init_shared") && shared_context != nullptr) {
    *context = shared_context;
    return PLEXUS_OK;
  }
  const int32_t code = inner().init(config, context);
  if (code == PLEXUS_OK) {
    shared_context = *context;
  }
  return code;
}

void finalize(plexus_net_context_t* context) {
  if (!is_mutant("init_shared")) {
    inner().finalize(context);
  }
}

int32_t device_count(plexus_net_context_t* context, uint32_t* devices) {
  const int32_t code = inner().device_count(context, devices);
  if (is_mutant("count_changes") && ++count > 5) {
    ++*devices;
  }
  return code;
}

int32_t properties(plexus_net_context_t* context, uint32_t device, plexus_net_properties_t* p) {
  const int32_t code = inner().properties(context, device, p);
  if (is_mutant("speed_zero")) {
    p->speed_mbit_per_s = 0;
  }
  if (is_mutant("reserved_written")) {
    p->reserved[3] = 1;
  }
  if (is_mutant("name_endless")) {
    std::memset(p->name, 'x', sizeof p->name);
  }
  if (is_mutant("requests_too_many")) {
    p->requests_max = 100;  // it takes 32
  }
  if (is_mutant("isend_mixes")) {
    p->takes_pieces = 0;  // so that all messages use isend
  }
  if (is_of_short_messages()) {
    p->message_bytes_max = kShortMessage;
  }
  if (is_mutant("recvs_too_many")) {
    p->recvs_max = 9;
  }
  if (is_with_dmabuf() && !is_mutant("dmabuf_unoffered")) {
    p->pointer_support |= PLEXUS_MEMORY_DMABUF;
  }
  return code;
}

int32_t start_listen(plexus_net_context_t* context,
                     uint32_t device,
                     plexus_net_handle_t* handle,
                     plexus_net_listen_t** listen) {
  const int32_t code = inner().listen(context, device, handle, listen);
  if (is_mutant("handle_too_long")) {
    std::memset(reinterpret_cast<char*>(handle) + sizeof *handle, 0, 4);
  }
  return code;
}

int32_t connect(plexus_net_context_t* context,
                uint32_t device,
                const plexus_net_handle_t* handle,
                plexus_net_send_t** send) {
  if (is_mutant("connect_blocks")) {
    int32_t code = PLEXUS_AGAIN;
    while ((code = inner().connect(context, device, handle, send)) == PLEXUS_AGAIN) {
      sleep_ms(1);
    }
    return code;
  }
  if (is_mutant("connect_lies")) {
    inner().connect(context, device, handle, send);
    return PLEXUS_OK;
  }
  return inner().connect(context, device, handle, send);
}

int32_t accept(plexus_net_listen_t* listen, plexus_net_recv_t** recv) {
  int32_t code = inner().accept(listen, recv);
  while (is_mutant("accept_blocks") && code == PLEXUS_AGAIN) {
    sleep_ms(1);
    code = inner().accept(listen, recv);
  }
  return code;
}

plexus_net_region_t host_region(const plexus_net_region_t& region) {
  plexus_net_region_t changed = region;
  if (is_with_dmabuf() && region.kind == PLEXUS_MEMORY_DMABUF) {
    changed.kind = PLEXUS_MEMORY_HOST;
  }
  return changed;
}

/// The wrapper's own request: a started flush. `tests`: number of tests so far.
struct Flush {
  int tests = 0;
};
Flush the_flush;
plexus_net_request_t* flush_request() {
  return reinterpret_cast<plexus_net_request_t*>(&the_flush);
}

int32_t flush(plexus_net_recv_t* /*recv*/,
              uint32_t buffers_count,
              const plexus_net_buffer_t* buffers,
              plexus_net_request_t** request) {
  if (is_mutant("dmabuf_flush_fails")) {
    say(sink, PLEXUS_LOG_ERROR, __FILE__, __LINE__, "mutant: no flush today");
    return PLEXUS_SYSTEM_ERROR;
  }
  if (is_mutant("dmabuf_flush_clears") && buffers_count > 0) {
    std::memset(buffers[0].data, 0, 1);
  }
  the_flush = {};
  *request = flush_request();
  return PLEXUS_OK;
}

int32_t test_flush() {
  const bool is_done = ++the_flush.tests > 3;
  return is_done && !is_mutant("dmabuf_flush_never") ? PLEXUS_OK : PLEXUS_AGAIN;
}

int32_t register_send(plexus_net_send_t* send,
                      const plexus_net_region_t* region,
                      plexus_net_memory_t** memory) {
  if (is_mutant("register_again")) {
    return PLEXUS_AGAIN;
  }
  if (is_mutant("register_writes") && region->size_bytes > 0) {
    static_cast<char*>(region->data)[0] ^= 1;
  }
  const plexus_net_region_t of_host = host_region(*region);
  return inner().register_send(send, &of_host, memory);
}
int32_t register_recv(plexus_net_recv_t* recv,
                      const plexus_net_region_t* region,
                      plexus_net_memory_t** memory) {
  if (is_mutant("register_writes") && region->size_bytes > 0) {
    static_cast<char*>(region->data)[0] ^= 1;
  }
  if (is_mutant("register_aligned") && reinterpret_cast<uintptr_t>(region->data) % 8 != 0) {
    say(sink, PLEXUS_LOG_ERROR, __FILE__, __LINE__, "mutant: not aligned");
    return PLEXUS_INVALID_ARGUMENT;
  }
  if (is_mutant("dmabuf_refused") && region->kind == PLEXUS_MEMORY_DMABUF) {
    say(sink, PLEXUS_LOG_ERROR, __FILE__, __LINE__, "mutant: not of a GPU");
    return PLEXUS_INVALID_ARGUMENT;
  }
  const plexus_net_region_t of_host = host_region(*region);
  return inner().register_recv(recv, &of_host, memory);
}

/// The data to send instead of `data` once three threads send over more connections than threads: a
/// fault that pairs of ranks do not show.
const void* mix_up(const plexus_net_send_t* send, const void* data, uint64_t size_bytes) {
  static std::mutex mutex;
  static std::set<std::thread::id> threads;
  static std::set<const plexus_net_send_t*> sends;
  static std::map<uint64_t, std::vector<char>> last;  // by size
  static std::deque<std::vector<char>> kept;          // as long as the request
  const std::scoped_lock lock(mutex);
  threads.insert(std::this_thread::get_id());
  sends.insert(send);
  const auto* const bytes = static_cast<const char*>(data);
  std::vector<char> sent(bytes, bytes + size_bytes);
  std::swap(sent, last[size_bytes]);
  if (threads.size() < 3 || sends.size() <= threads.size() || sent.size() != size_bytes) {
    return data;
  }
  kept.push_back(std::move(sent));
  return kept.back().data();
}

/// Completions that depend on other connections, as if all shared one queue of completions.
class SharedQueue {
 public:
  void begin(plexus_net_request_t* request, const void* connection) {
    const std::scoped_lock lock(mutex_);
    requests_[request] = {connection, 0, {}};
  }
  int32_t test(plexus_net_request_t* request, uint64_t* sizes_bytes) {
    const std::scoped_lock lock(mutex_);
    Request& own = requests_[request];
    const bool was_tested_last = std::exchange(last_tested_, own.connection) == own.connection;
    if (is_mutant("test_elsewhere") && was_tested_last) {
      return PLEXUS_AGAIN;
    }
    if (own.completion == 0) {
      if (const int32_t code = inner().test(request, own.sizes_bytes.data()); code != PLEXUS_OK) {
        return code;
      }
      own.completion = ++completions_;
      latest_[own.connection] = own.completion;
    }
    const bool is_overtaken = std::any_of(latest_.begin(), latest_.end(), [&](const auto& each) {
      return each.first != own.connection && each.second > own.completion;
    });
    if (is_mutant("test_after_others") && !is_overtaken) {
      return PLEXUS_AGAIN;
    }
    if (sizes_bytes != nullptr) {
      *sizes_bytes = own.sizes_bytes[0];
    }
    return PLEXUS_OK;
  }

 private:
  struct Request {
    const void* connection = nullptr;
    uint64_t completion = 0;  // its number; 0: not complete
    std::array<uint64_t, PLEXUS_NET_RECVS_MAX> sizes_bytes{};
  };
  std::mutex mutex_;
  const void* last_tested_ = nullptr;
  uint64_t completions_ = 0;
  std::map<const void*, uint64_t> latest_;
  std::map<plexus_net_request_t*, Request> requests_;
};
SharedQueue shared_queue;
bool has_shared_queue() { return is_mutant("test_elsewhere") || is_mutant("test_after_others"); }

int32_t isend(plexus_net_send_t* send,
              const void* data,
              uint64_t size_bytes,
              int32_t tag,
              plexus_net_memory_t* memory,
              plexus_net_request_t** request) {
  const int number = ++count;
  if (is_mutant("isend_throws") && number == 3) {
    throw std::runtime_error("mutant");
  }
  if (is_mutant("isend_crashes") && number == 3) {
    std::raise(SIGSEGV);
  }
  if (is_mutant("isend_sleeps")) {
    sleep_ms(20);
  }
  if (is_mutant("deregister_alone")) {
    is_sending = true;
    sleep_ms(1);
    is_sending = false;
  }
  const bool is_early_long =
      is_mutant("isend_spoils_early") && size_bytes > 200000 && last_data == nullptr;
  if ((is_mutant("isend_corrupts") && size_bytes > 100) || is_early_long) {
    static thread_local std::vector<char> copy;
    copy.assign(static_cast<const char*>(data), static_cast<const char*>(data) + size_bytes);
    copy[size_bytes / 2] ^= 1;
    static std::vector<std::vector<char>> kept;  // as long as the request
    kept.push_back(std::move(copy));
    return inner().isend(send, kept.back().data(), size_bytes, tag, memory, request);
  }
  if (is_mutant("isend_mixes") && size_bytes > 0) {
    data = mix_up(send, data, size_bytes);
  }
  if (is_mutant("isend_again_sent") && number % 10 == 0) {
    // The message is sent although the host is told to call again, so it arrives twice.
    inner().isend(send, data, size_bytes, tag, memory, request);
    return PLEXUS_AGAIN;
  }
  if (is_mutant("isend_empty_null") && data == nullptr) {
    say(sink, PLEXUS_LOG_ERROR, __FILE__, __LINE__, "mutant: no address");
    return PLEXUS_INVALID_ARGUMENT;
  }
  if (is_mutant("isend_short") && size_bytes > (uint64_t{1} << 29)) {
    size_bytes -= 1;
  }
  if (is_mutant("isend_one_tag")) {
    tag = 0;
  }
  if (is_mutant("isend_abs_tag") && tag < 0) {
    say(sink, PLEXUS_LOG_ERROR, __FILE__, __LINE__, "mutant: tags are 0 or more");
    return PLEXUS_INVALID_ARGUMENT;
  }
  if (is_mutant("isend_logs")) {
    say(sink, PLEXUS_LOG_INFO, __FILE__, __LINE__, "mutant: a message");
  }
  const int32_t code = inner().isend(send, data, size_bytes, tag, memory, request);
  if (has_shared_queue() && code == PLEXUS_OK) {
    shared_queue.begin(*request, send);
  }
  if (is_mutant("isend_code") && code == PLEXUS_AGAIN) {
    return -11;
  }
  if (is_mutant("isend_unsure") && number == 2) {
    say(sink, PLEXUS_LOG_ERROR, __FILE__, __LINE__, "mutant: nothing happened");
  }
  return code;
}

/// Only the oldest of all receives is ever done; a host that tests another one waits for ever.
std::mutex receives_mutex;
std::deque<plexus_net_request_t*> receives;
bool is_behind(plexus_net_request_t* request) {
  const std::scoped_lock lock(receives_mutex);
  return std::find(receives.begin(), receives.end(), request) > receives.begin() &&
         std::find(receives.begin(), receives.end(), request) != receives.end();
}
void forget(plexus_net_request_t* request) {
  const std::scoped_lock lock(receives_mutex);
  std::erase(receives, request);
}

int32_t irecv(plexus_net_recv_t* recv,
              uint32_t buffers_count,
              const plexus_net_buffer_t* buffers,
              plexus_net_request_t** request) {
  std::array<plexus_net_buffer_t, PLEXUS_NET_RECVS_MAX> changed{};
  for (uint32_t i = 0; i < buffers_count; ++i) {
    changed[i] = buffers[i];
  }
  if (is_mutant("irecv_one_tag") || is_mutant("isend_one_tag")) {
    for (plexus_net_buffer_t& buffer : changed) {
      buffer.tag = 0;
    }
  }
  if (is_mutant("irecv_long") && buffers_count > 0) {
    changed[0].size_bytes += 64;  // accepts messages that do not fit
  }
  if (is_mutant("irecv_early") && buffers_count > 0 && changed[0].size_bytes > 0) {
    static_cast<char*>(changed[0].data)[changed[0].size_bytes - 1] = 0;
  }
  if (is_mutant("irecv_reversed") && buffers_count > 1) {
    std::swap(changed[0], changed[1]);
  }
  if (is_mutant("irecv_beside") && buffers_count > 0) {
    static_cast<char*>(changed[0].data)[changed[0].size_bytes] = 0;
  }
  if (buffers_count > 0) {
    last_data = changed[0].data;
  }
  const int32_t code = inner().irecv(recv, buffers_count, changed.data(), request);
  if (is_mutant("test_in_order") && code == PLEXUS_OK) {
    const std::scoped_lock lock(receives_mutex);
    receives.push_back(*request);
  }
  if (has_shared_queue() && code == PLEXUS_OK) {
    shared_queue.begin(*request, recv);
  }
  return code;
}

int32_t isend_short(plexus_net_send_t* send,
                    const void* data,
                    uint64_t size_bytes,
                    int32_t tag,
                    plexus_net_memory_t* memory,
                    plexus_net_request_t** request) {
  return is_too_long(size_bytes, is_mutant("short_isend"))
             ? PLEXUS_INVALID_ARGUMENT
             : inner().isend(send, data, size_bytes, tag, memory, request);
}
int32_t isend_pieces(plexus_net_send_t* send,
                     uint32_t pieces_count,
                     const plexus_net_piece_t* pieces,
                     int32_t tag,
                     plexus_net_request_t** request) {
  uint64_t size_bytes = 0;
  for (uint32_t i = 0; i < pieces_count; ++i) {
    size_bytes += pieces[i].size_bytes;
  }
  return is_too_long(size_bytes, is_mutant("short_pieces"))
             ? PLEXUS_INVALID_ARGUMENT
             : inner().isend_pieces(send, pieces_count, pieces, tag, request);
}
int32_t irecv_pieces(plexus_net_recv_t* recv,
                     uint32_t pieces_count,
                     const plexus_net_piece_t* pieces,
                     int32_t tag,
                     plexus_net_request_t** request) {
  std::array<plexus_net_piece_t, PLEXUS_NET_PIECES_MAX> reversed{};
  std::reverse_copy(pieces, pieces + pieces_count, reversed.begin());
  return inner().irecv_pieces(
      recv, pieces_count, is_mutant("pieces_reversed") ? reversed.data() : pieces, tag, request);
}

int32_t isend_gathered(plexus_net_send_t* send,
                       uint32_t sources_count,
                       const plexus_net_source_t* sources,
                       int32_t tag,
                       plexus_net_request_t** request) {
  std::array<plexus_net_source_t, PLEXUS_NET_PIECES_MAX> changed{};
  std::copy_n(sources, sources_count, changed.begin());
  if (is_mutant("gathered_reversed")) {
    std::reverse(changed.begin(), changed.begin() + sources_count);
  }
  if (is_mutant("gathered_short")) {
    sources_count = 1;
  }
  if (is_mutant("gathered_spoils") && changed[1].size_bytes > 0) {
    *static_cast<char*>(const_cast<void*>(  // NOLINT(*-pro-type-const-cast): the fault
        changed[1].data)) = 1;
  }
  return inner().isend_gathered(send, sources_count, changed.data(), tag, request);
}

int32_t deregister(plexus_net_memory_t* memory) {
  if (is_mutant("deregister_alone") && is_sending) {
    return PLEXUS_INTERNAL_ERROR;
  }
  return inner().deregister(memory);
}

int32_t test(plexus_net_request_t* request, uint64_t* sizes_bytes) {
  if (request == flush_request()) {
    return test_flush();
  }
  if (has_shared_queue()) {
    return shared_queue.test(request, sizes_bytes);
  }
  if (is_mutant("test_in_order") && is_behind(request)) {
    return PLEXUS_AGAIN;
  }
  const int32_t code = inner().test(request, sizes_bytes);
  if (is_mutant("test_in_order") && code != PLEXUS_AGAIN) {
    forget(request);
  }
  if (is_mutant("test_blocks") && code == PLEXUS_AGAIN) {
    int32_t later = PLEXUS_AGAIN;
    while ((later = inner().test(request, sizes_bytes)) == PLEXUS_AGAIN) {
      sleep_ms(1);
    }
    return later;
  }
  if (is_mutant("test_sizes_early") && code == PLEXUS_AGAIN && sizes_bytes != nullptr) {
    *sizes_bytes = 0;
  }
  if (is_mutant("test_no_sizes") && sizes_bytes != nullptr) {
    *sizes_bytes = 0;
  }
  if (is_mutant("test_swallows") && code != PLEXUS_OK) {
    return PLEXUS_AGAIN;  // a failure stays pending for ever
  }
  if (is_mutant("test_two_sentences") && code != PLEXUS_OK && code != PLEXUS_AGAIN) {
    say(sink, PLEXUS_LOG_ERROR, __FILE__, __LINE__, "mutant: once more");
  }
  if (is_mutant("test_code") && code == PLEXUS_REMOTE_ERROR) {
    return PLEXUS_INTERNAL_ERROR;
  }
  if (is_mutant("test_raises") && code == PLEXUS_REMOTE_ERROR) {
    std::raise(SIGPIPE);
  }
  if (is_mutant("test_exits") && code == PLEXUS_REMOTE_ERROR) {
    std::_Exit(0);
  }
  return code;
}

void close_send(plexus_net_send_t* send) {
  if (is_mutant("close_sleeps")) {
    sleep_ms(300);
  }
  if (!is_mutant("close_send_leaks")) {
    inner().close_send(send);
  }
}
void close_recv(plexus_net_recv_t* recv) {
  inner().close_recv(recv);
  if (is_mutant("close_touches") && last_data != nullptr) {
    *static_cast<volatile char*>(last_data.load()) = 1;
    std::thread([data = last_data.load()] {
      sleep_ms(10);
      *static_cast<volatile char*>(data) = 1;
    }).detach();
  }
  if (is_mutant("close_others")) {
    for (int fd = 20; fd < 40; ++fd) {
      close(fd);
    }
  }
}
void close_listen(plexus_net_listen_t* listen) {
  if (!is_mutant("close_listen_leaks")) {
    inner().close_listen(listen);
  }
}

plexus_net_ops_t make_ops() {
  plexus_net_ops_t ops = inner();
  ops.init = init;
  ops.finalize = finalize;
  ops.device_count = device_count;
  ops.properties = properties;
  ops.listen = start_listen;
  ops.connect = connect;
  ops.accept = accept;
  ops.register_send = register_send;
  ops.register_recv = register_recv;
  ops.isend = is_of_short_messages() ? isend_short : isend;
  ops.irecv = irecv;
  if (ops.isend_pieces != nullptr) {
    ops.isend_pieces = isend_pieces;
    ops.irecv_pieces = is_mutant("pieces_half") ? nullptr : irecv_pieces;
  }
  if (ops.isend_gathered != nullptr) {
    ops.isend_gathered = isend_gathered;
  }
  ops.deregister = deregister;
  ops.test = test;
  ops.flush = is_with_dmabuf() && !is_mutant("dmabuf_no_flush") ? flush : nullptr;
  ops.close_send = close_send;
  ops.close_recv = close_recv;
  ops.close_listen = close_listen;
  if (is_mutant("table_reserved")) {
    ops.reserved = 7;
  }
  return ops;
}

plexus_plugin_t make_plugin() {
  static const plexus_net_ops_t kOps = make_ops();
  plexus_plugin_t plugin = wrapped();
  plugin.name = "mutant";
  plugin.net = &kOps;
  return plugin;
}

}  // namespace

const plexus_plugin_t* plexus_plugin_query(uint32_t host_abi) {
  if (is_mutant("query_picky") && host_abi != PLEXUS_HOST_ABI) {
    return nullptr;
  }
  if (is_mutant("query_opens") && open("/dev/null", O_RDONLY | O_CLOEXEC) < 0) {
    return nullptr;
  }
  static plexus_plugin_t plugin = make_plugin();
  if (is_mutant("query_changes")) {
    ++plugin.reserved;
  }
  return &plugin;
}
