// SPDX-License-Identifier: Apache-2.0
// The connection between the two processes of a check: it carries handles and keeps them in step.
// Every wait is bounded.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "core/base/result.hpp"
#include "tools/conformance/status_page.hpp"
#include "tools/conformance/trace.hpp"

namespace plexus::conformance {

/// One end of a socket pair.
class PeerLink {
 public:
  [[nodiscard]] static Result<std::array<PeerLink, 2>> make_pair();
  PeerLink() = default;
  PeerLink(PeerLink&& other) noexcept;
  PeerLink& operator=(PeerLink&& other) noexcept;
  ~PeerLink();

  /// `peer`: the other process's status. `status` shows when the process waits here. Waits end
  /// after `limit`. Barriers are written to `trace`.
  void attach(ProcessStatus& status,
              const ProcessStatus* peer,
              std::chrono::milliseconds limit,
              Trace& trace);

  template <class T>
  [[nodiscard]] Result<void> send(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return send_bytes(std::as_bytes(std::span(&value, 1)));
  }
  template <class T>
  [[nodiscard]] Result<T> receive() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    PLEXUS_TRY(receive_bytes(std::as_writable_bytes(std::span(&value, 1))));
    return value;
  }
  /// Waits until both processes are here.
  [[nodiscard]] Result<void> meet();
  /// Waits until the other process has ended and its descriptors are closed.
  [[nodiscard]] Result<void> wait_for_end();

 private:
  [[nodiscard]] Result<void> send_bytes(std::span<const std::byte> bytes);
  [[nodiscard]] Result<void> receive_bytes(std::span<std::byte> bytes);
  /// False: the other end is closed.
  [[nodiscard]] Result<bool> wait_readable();
  /// Waits for events of `fd`; 0: none within the limit, while the peer could run.
  [[nodiscard]] Result<int> wait_for_peer(int fd) const;

  int fd_ = -1;
  ProcessStatus* status_ = nullptr;
  const ProcessStatus* peer_ = nullptr;
  Trace* trace_ = nullptr;
  std::chrono::milliseconds limit_{0};
};

}  // namespace plexus::conformance
