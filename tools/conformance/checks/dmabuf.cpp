// SPDX-License-Identifier: Apache-2.0
// Memory given as a dma-buf, and the flush of data received there. It is host memory, so no GPU is
// needed; a plugin that only accepts dma-bufs of GPUs is not checked here.
#include <algorithm>
#include <array>
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/conformance/check.hpp"
#include "tools/conformance/finding.hpp"
#include "tools/conformance/traffic.hpp"

namespace plexus::conformance {
namespace {

constexpr size_t kBytes = 1 << 20;
constexpr size_t kOffset = 1 << 16;  // offset of the registered range

/// Host memory with a dma-buf of it, or with its memfd if the kernel cannot make one.
class SharedPages {
 public:
  SharedPages() : memfd_(::memfd_create("plexus-conformance", MFD_ALLOW_SEALING | MFD_CLOEXEC)) {
    if (memfd_ < 0 || ::ftruncate(memfd_, kBytes) != 0) {
      return;
    }
    void* const place = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd_, 0);
    data_ = place == MAP_FAILED ? nullptr : static_cast<std::byte*>(place);
  }
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;
  ~SharedPages() {
    if (data_ != nullptr) {
      ::munmap(data_, kBytes);
    }
    if (memfd_ >= 0) {
      ::close(memfd_);
    }
  }
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  /// The caller closes it; -1: none.
  [[nodiscard]] int share() const {
    const int maker = ::open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
    if (maker < 0) {
      return ::fcntl(memfd_, F_DUPFD_CLOEXEC, 0);
    }
    // the kernel requires that the pages cannot go away
    ::fcntl(memfd_, F_ADD_SEALS, F_SEAL_SHRINK);
    udmabuf_create wish{};
    wish.memfd = static_cast<uint32_t>(memfd_);
    wish.flags = UDMABUF_FLAGS_CLOEXEC;
    wish.size = kBytes;
    const int made = ::ioctl(maker, UDMABUF_CREATE, &wish);
    ::close(maker);
    return made;
  }

 private:
  int memfd_;
  std::byte* data_ = nullptr;
};

/// Registers everything from kOffset on, and closes the descriptor as the contract says. `*memory`
/// null: the plugin refused and said why.
Result<bool> register_pages(Recv& recv, const SharedPages& pages, plexus_net_memory_t** memory) {
  const int fd = pages.share();
  if (fd < 0) {
    return skip("this host cannot create a dma-buf");
  }
  const plexus_net_region_t region{pages.data() + kOffset, kBytes - kOffset, kOffset, fd,
                                   PLEXUS_MEMORY_DMABUF};
  const Net& net = recv.net();
  const int32_t code = net.fixture->monitor().call(
      Place::kRegisterRecv, [&] { return net.ops().register_recv(recv.raw(), &region, memory); });
  ::close(fd);
  return code == PLEXUS_OK;
}

/// Waits for a flush of `buffer`.
Result<void> flush(Recv& recv, const plexus_net_buffer_t& buffer) {
  const Net& net = recv.net();
  Monitor& monitor = net.fixture->monitor();
  plexus_net_request_t* request = nullptr;
  const int32_t code = monitor.call(
      Place::kFlush, [&] { return net.ops().flush(recv.raw(), 1, &buffer, &request); });
  if (code != PLEXUS_OK) {
    return failed(monitor, "flush", code);
  }
  if (request == nullptr) {
    return ok();  // visible already
  }
  return net.fixture->wait_until("a flush", [&]() -> Result<bool> {
    const int32_t tested = recv.test(request, nullptr);
    if (tested != PLEXUS_OK && tested != PLEXUS_AGAIN) {
      return failed(monitor, "test of a flush", tested);
    }
    return tested == PLEXUS_OK;
  });
}

/// Sends `message` to `buffer` and waits until test() reports it.
Result<void> receive(Pair& pair, const Bytes& message, const plexus_net_buffer_t& buffer) {
  Traffic traffic(*pair.send.net().fixture);
  plexus_net_request_t* request = nullptr;
  uint64_t size_bytes = 0;
  PLEXUS_TRY(traffic.send(pair.send, message));
  return pair.send.net().fixture->wait_until("a message in a dma-buf", [&]() -> Result<bool> {
    PLEXUS_TRY(is_sent, traffic.step());
    int32_t code = PLEXUS_AGAIN;
    if (request == nullptr) {
      code = pair.recv.irecv({&buffer, 1}, &request);
      code = code == PLEXUS_OK ? PLEXUS_AGAIN : code;
    } else if (size_bytes == 0) {
      code = pair.recv.test(request, &size_bytes);
    }
    if (code != PLEXUS_OK && code != PLEXUS_AGAIN) {
      return failed(pair.recv.net().fixture->monitor(), "a receive", code);
    }
    return is_sent && size_bytes == message.size();
  });
}

Result<void> arrives_flushed(Pair& pair) {
  const Net& net = pair.recv.net();
  PLEXUS_TRY(context, Context::open(net));
  if ((context.properties().pointer_support & PLEXUS_MEMORY_DMABUF) == 0) {
    return skip("the device does not support dma-bufs");
  }
  const SharedPages pages;
  PLEXUS_TRY(expect(pages.data() != nullptr, "cannot map memory"));
  plexus_net_memory_t* memory = nullptr;
  PLEXUS_TRY(is_taken, register_pages(pair.recv, pages, &memory));
  if (!is_taken) {
    return skip("the plugin cannot register a dma-buf of host memory: {}",
                net.fixture->monitor().last_failure());
  }
  for (uint64_t seed = 1; seed < 20; ++seed) {
    const Bytes message = make_message(seed * 37'000, seed);
    std::byte* const place = pages.data() + kOffset + seed;
    const plexus_net_buffer_t buffer{place, message.size(), memory, 0, 0};
    PLEXUS_TRY(receive(pair, message, buffer));
    PLEXUS_TRY(flush(pair.recv, buffer));
    PLEXUS_TRY(expect(std::equal(message.begin(), message.end(), place),
                      "a message of {} bytes is not in its dma-buf after the flush",
                      message.size()));
  }
  deregister(net, memory);
  return ok();
}

constexpr std::array kChecks = {
    Check{"dmabuf.flush", "receives into a dma-buf, where a flush makes it visible",
          "plexus_net.h flush: makes data of completed receives visible; dmabuf_fd: closed by the "
          "host after the call",
          on_pair<arrives_flushed>},
};

}  // namespace

CheckTable dmabuf_checks() { return kChecks; }

}  // namespace plexus::conformance
