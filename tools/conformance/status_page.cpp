// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/status_page.hpp"

#include <algorithm>
#include <new>
#include <sys/mman.h>

namespace plexus::conformance {

const char* place_name(Place place) {
  static constexpr std::array<const char*, kPlaces> kNames = {"the kit itself",
                                                              "loading",
                                                              "plexus_plugin_query",
                                                              "init",
                                                              "finalize",
                                                              "device_count",
                                                              "properties",
                                                              "listen",
                                                              "connect",
                                                              "accept",
                                                              "register_send",
                                                              "register_recv",
                                                              "deregister",
                                                              "isend",
                                                              "irecv",
                                                              "flush",
                                                              "test",
                                                              "close_send",
                                                              "close_recv",
                                                              "close_listen",
                                                              "net_path",
                                                              "get_times",
                                                              "startEvent",
                                                              "stopEvent",
                                                              "recordEventState",
                                                              "reduce_support",
                                                              "register_memory",
                                                              "iallreduce",
                                                              "close_group",
                                                              "waiting for the other process",
                                                              "the exit of the process"};
  const auto index = static_cast<uint32_t>(place);
  return index < kPlaces ? kNames[index] : "an unknown call";
}

void StatusText::set(std::string_view text) noexcept {
  const size_t size = std::min(text.size(), kBytes - 1);
  std::copy_n(text.begin(), size, bytes_.begin());
  bytes_[size] = '\0';
}

std::string StatusText::get() const {
  return {bytes_.begin(), std::find(bytes_.begin(), bytes_.end(), '\0')};
}

void UnmapStatusPage::operator()(StatusPage* page) const noexcept {
  ::munmap(page, sizeof(StatusPage));
}

Result<SharedStatusPage> make_status_page() {
  void* const page = ::mmap(nullptr, sizeof(StatusPage), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) {
    return fail(Code::kSystemError, "cannot map {} shared bytes for a check", sizeof(StatusPage));
  }
  return SharedStatusPage(new (page) StatusPage);
}

}  // namespace plexus::conformance
