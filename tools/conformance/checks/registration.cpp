// SPDX-License-Identifier: Apache-2.0
// register_send, register_recv, deregister.
#include <array>
#include <atomic>
#include <deque>
#include <sys/mman.h>
#include <thread>
#include <vector>

#include "tools/conformance/check.hpp"
#include "tools/conformance/traffic.hpp"

namespace plexus::conformance {
namespace {

Result<void> both_ends(Pair& pair) {
  Bytes data(4096);
  PLEXUS_TRY(sent, pair.send.register_memory(data.data(), data.size()));
  PLEXUS_TRY(received, pair.recv.register_memory(data.data(), data.size()));
  deregister(pair.send.net(), sent);
  deregister(pair.recv.net(), received);
  return ok();
}

Result<void> sizes(Pair& pair) {
  Bytes data(1 << 20);
  for (const uint64_t size : {1u, 2u, 7u, 63u, 64u, 4095u, 4096u, 4097u, 65536u, 1u << 20}) {
    PLEXUS_TRY(memory, pair.recv.register_memory(data.data(), size));
    deregister(pair.recv.net(), memory);
    PLEXUS_TRY(other, pair.send.register_memory(data.data(), size));
    deregister(pair.send.net(), other);
  }
  return ok();
}

Result<void> unaligned(Pair& pair) {
  Bytes data(8192);
  for (const size_t offset : {1u, 3u, 17u, 63u, 4095u}) {
    PLEXUS_TRY(memory, pair.send.register_memory(data.data() + offset, 1001));
    deregister(pair.send.net(), memory);
  }
  return ok();
}

Result<void> same_twice(Pair& pair) {
  Bytes data = make_message(4096, 1);
  PLEXUS_TRY(first, pair.send.register_memory(data.data(), data.size()));
  PLEXUS_TRY(second, pair.send.register_memory(data.data(), data.size()));
  deregister(pair.send.net(), first);
  // The second registration is still valid: what follows uses it.
  GuardedBuffer target(data.size());
  Traffic traffic(*pair.send.net().fixture);
  PLEXUS_TRY(traffic.recv(pair.recv, target));
  PLEXUS_TRY(traffic.send(pair.send, data));
  PLEXUS_TRY(traffic.finish());
  deregister(pair.send.net(), second);
  return target.expect_message(data);
}

Result<void> overlapping(Pair& pair) {
  Bytes data(65536);
  std::deque<plexus_net_memory_t*> all;
  for (const size_t begin : {0u, 1000u, 30000u}) {
    PLEXUS_TRY(memory, pair.recv.register_memory(data.data() + begin, 32768));
    all.push_back(memory);
  }
  for (plexus_net_memory_t* memory : all) {
    deregister(pair.recv.net(), memory);
  }
  return ok();
}

Result<void> many_regions(Pair& pair) {
  std::deque<Bytes> data;
  std::deque<plexus_net_memory_t*> all;
  for (int i = 0; i < 256; ++i) {
    data.emplace_back(4096);
    PLEXUS_TRY(memory, pair.send.register_memory(data.back().data(), data.back().size()));
    all.push_back(memory);
  }
  PLEXUS_TRY(deliver(pair, {.size_bytes = 1000}));
  while (!all.empty()) {  // the newest first
    deregister(pair.send.net(), all.back());
    all.pop_back();
  }
  return deliver(pair, {.size_bytes = 1000});
}

/// The host ends registrations when its user does, in another thread than that of the messages.
Result<void> deregister_in_a_thread(Pair& pair) {
  if (pair.send.net().ops().isend_gathered == nullptr) {
    return skip("the plugin does not gather registered memory");
  }
  constexpr size_t kRegions = 50;
  std::deque<Bytes> data;
  std::vector<plexus_net_memory_t*> all;
  for (size_t i = 0; i < kRegions; ++i) {
    data.emplace_back(4096);
    PLEXUS_TRY(memory, pair.send.register_memory(data.back().data(), data.back().size()));
    all.push_back(memory);
  }
  std::atomic<size_t> begun{0};  // messages
  std::thread ends([&] {
    for (size_t i = 0; i < all.size(); ++i) {
      while (begun <= i) {
        std::this_thread::yield();
      }
      deregister(pair.send.net(), all[i]);
    }
  });
  Result<void> delivered = ok();
  for (size_t i = 0; i < kRegions; ++i) {
    ++begun;  // also when one failed, so that the thread ends
    if (delivered.has_value()) {
      delivered = deliver(pair, {.size_bytes = 10'000});
    }
  }
  ends.join();
  return delivered;
}

Result<void> leaves_content(Pair& pair) {
  Bytes data = make_message(100000, 4);
  const Bytes copy = data;
  PLEXUS_TRY(memory, pair.recv.register_memory(data.data(), data.size()));
  deregister(pair.recv.net(), memory);
  return expect(data == copy, "registering changed the memory");
}

Result<void> part_of_a_region(Pair& pair) {
  Bytes source = make_message(100000, 2);
  Bytes target(100000);
  PLEXUS_TRY(from, pair.send.register_memory(source.data(), source.size()));
  PLEXUS_TRY(into, pair.recv.register_memory(target.data(), target.size()));
  constexpr uint64_t kSize = 1000;
  for (const size_t at : {0u, 777u, 99000u}) {
    const plexus_net_buffer_t buffer{target.data() + at, kSize, into, 3, 0};
    plexus_net_request_t* received = nullptr;
    plexus_net_request_t* sent = nullptr;
    bool is_received = false;
    bool is_sent = false;
    PLEXUS_TRY(pair.send.net().fixture->wait_until("a part of a region", [&]() -> Result<bool> {
      if (received == nullptr) {
        pair.recv.irecv({&buffer, 1}, &received);
      } else if (!is_received) {
        is_received = pair.recv.test(received, nullptr) == PLEXUS_OK;
      }
      if (sent == nullptr) {
        pair.send.isend(source.data() + at, kSize, 3, from, &sent);
      } else if (!is_sent) {
        is_sent = pair.send.test(sent, nullptr) == PLEXUS_OK;
      }
      return is_received && is_sent;
    }));
    PLEXUS_TRY(expect(std::equal(source.begin() + static_cast<ptrdiff_t>(at),
                                 source.begin() + static_cast<ptrdiff_t>(at + kSize),
                                 target.begin() + static_cast<ptrdiff_t>(at)),
                      "a message from offset {} of a region arrived corrupted", at));
  }
  deregister(pair.send.net(), from);
  deregister(pair.recv.net(), into);
  return ok();
}

Result<void> large_region(Pair& pair) {
  constexpr size_t kSize = size_t{1} << 30;
  void* const data = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  PLEXUS_TRY(expect(data != MAP_FAILED, "cannot map 1 GiB"));
  PLEXUS_TRY(memory, pair.recv.register_memory(data, kSize));
  deregister(pair.recv.net(), memory);
  ::munmap(data, kSize);
  return deliver(pair, {.size_bytes = 100});
}

Result<void> while_busy(Pair& pair) {
  const Bytes message = make_message(2000, 1);
  std::deque<GuardedBuffer> targets;
  Traffic traffic(*pair.send.net().fixture);
  Bytes other(4096);
  for (int i = 0; i < 50; ++i) {
    targets.emplace_back(message.size());
    PLEXUS_TRY(traffic.recv(pair.recv, targets.back()));
    PLEXUS_TRY(traffic.send(pair.send, message));
    PLEXUS_TRY(memory, pair.recv.register_memory(other.data(), other.size()));
    PLEXUS_TRY(traffic.step());
    deregister(pair.recv.net(), memory);
  }
  PLEXUS_TRY(traffic.finish());
  for (const GuardedBuffer& target : targets) {
    PLEXUS_TRY(target.expect_message(message));
  }
  return ok();
}

Result<void> moved_memory(Pair& pair) {
  // The address is mapped again between two uses: a registration cache must not keep the old
  // mapping.
  constexpr size_t kSize = 1 << 16;
  void* place = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  PLEXUS_TRY(expect(place != MAP_FAILED, "cannot map memory"));
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const Bytes message = make_message(kSize / 2, seed);
    std::copy(message.begin(), message.end(), static_cast<std::byte*>(place));
    GuardedBuffer target(message.size());
    {
      Traffic traffic(*pair.send.net().fixture);
      PLEXUS_TRY(traffic.recv(pair.recv, target));
      PLEXUS_TRY(traffic.send(pair.send, {static_cast<std::byte*>(place), message.size()}));
      PLEXUS_TRY(traffic.finish());
    }
    PLEXUS_TRY(target.expect_message(message));
    ::munmap(place, kSize);
    place = ::mmap(place, kSize, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    PLEXUS_TRY(expect(place != MAP_FAILED, "cannot map the same address again"));
  }
  ::munmap(place, kSize);
  return ok();
}

Result<void> refuses_other_memory(Pair& pair) {
  const Net& net = pair.send.net();
  Bytes data(4096);
  PLEXUS_TRY(context, Context::open(net));
  const uint32_t offered = context.properties().pointer_support;
  constexpr uint32_t kOthers = PLEXUS_MEMORY_CUDA | PLEXUS_MEMORY_DMABUF;
  if ((offered & kOthers) == kOthers) {
    return skip("the device supports GPU memory, which this check cannot provide");
  }
  for (const uint32_t kind : {PLEXUS_MEMORY_CUDA, PLEXUS_MEMORY_DMABUF}) {
    if ((offered & kind) != 0) {
      continue;
    }
    const plexus_net_region_t region{data.data(), data.size(), 0, -1, kind};
    plexus_net_memory_t* memory = nullptr;
    const int32_t code = net.fixture->monitor().call(Place::kRegisterSend, [&] {
      return net.ops().register_send(pair.send.raw(), &region, &memory);
    });
    PLEXUS_TRY(expect(code != PLEXUS_OK && code != PLEXUS_AGAIN,
                      "it registered {}, which its pointer_support does not include",
                      kind == PLEXUS_MEMORY_CUDA ? "GPU memory" : "a dma-buf"));
  }
  return deliver(pair, {.size_bytes = 100});
}

constexpr const char* kRule =
    "plexus_net.h register_send: registers memory for a connection; the host does so before it "
    "uses a buffer";
constexpr const char* kHostRule =
    "plexus_net.h register_send: the memory stays the host's, which keeps it mapped until "
    "deregister";

constexpr std::array kChecks = {
    Check{"register.ends", "registers memory at both ends", kRule, on_pair<both_ends>},
    Check{"register.sizes", "registers 1 byte to 1 MiB", kRule, on_pair<sizes>},
    Check{"register.unaligned", "registers at any address", kRule, on_pair<unaligned>},
    Check{"register.twice", "registers the same memory twice", kRule, on_pair<same_twice>},
    Check{"register.overlapping", "registers overlapping memory", kRule, on_pair<overlapping>},
    Check{"register.many", "supports 256 registrations of a connection", kRule,
          on_pair<many_regions>},
    Check{"register.large", "registers 1 GiB at once", kRule, on_pair<large_region>},
    Check{"register.content", "does not change the memory", kHostRule, on_pair<leaves_content>},
    Check{"register.part", "sends and receives inside of a region", kRule,
          on_pair<part_of_a_region>},
    Check{"register.busy", "registers while messages are in flight", kRule, on_pair<while_busy>},
    Check{"register.moved", "uses memory that was newly mapped at an old address", kHostRule,
          on_pair<moved_memory>},
    Check{"register.threads", "deregisters in one thread while another one sends",
          "plexus_net.h isend_gathered: deregister() by one thread while another one uses the "
          "connection",
          on_pair<deregister_in_a_thread>},
    Check{"register.kinds", "refuses kinds of memory that it does not support",
          "plexus_net.h pointer_support: kinds of memory, a bit mask",
          on_pair<refuses_other_memory>},
};

}  // namespace

CheckTable registration_checks() { return kChecks; }

}  // namespace plexus::conformance
