// SPDX-License-Identifier: Apache-2.0
// The ends of transports that move slots through a plugin. Such a transport writes two pumps, one
// that sends and one that receives; a pump neither knows nor cares whether the executor or a kernel
// is at the other side of its PumpFifo. `PumpedEnd` makes the ends of host ranks and of CUDA ranks
// of them. The pump is a member, so that the engine's call of an end is its only indirect one.
#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include "core/transport/connection.hpp"
#include "core/transport/network/pump_fifo.hpp"

namespace plexus {

/// What a pump does unless it says otherwise, each as the function of ConnectionEnd of that name.
/// A pump has besides:
///   Options, and a constructor that takes the connection's key and these. A pump that receives may
///     also take the executor's RecvConnection, which says where its next message is wanted
///   Result<bool> progress_connect()   true: connected; `fifo` has memory from then on
///   Result<bool> progress()           moves slots; true when something moved
///   const PumpFifo& fifo() const
///   std::string route() const
class Pump {
 public:
  [[nodiscard]] const Error* broken() const noexcept { return nullptr; }
  [[nodiscard]] bool drained() const noexcept { return true; }
  [[nodiscard]] bool settled() const noexcept { return true; }
  [[nodiscard]] bool seeks() const noexcept { return false; }
  [[nodiscard]] std::optional<HeldUp> held_up() const { return std::nullopt; }
  /// Memory for messages outside `fifo`.
  [[nodiscard]] size_t held_bytes() const noexcept { return 0; }
  void expect(uint64_t /*messages*/) noexcept {}
  void observe(StepObserver* /*observer*/) {}
  /// What of user memory a pump that sends can read without a copy through slots.
  [[nodiscard]] Reach reach() const noexcept { return Reach::kNothing; }
  /// False when another end's pump serves this direction too, and progress() is not to be called.
  [[nodiscard]] bool is_driven() const noexcept { return true; }
};

/// `End`: SendEnd, RecvEnd or DeviceEnd.
template <class End, class P>
class PumpedEnd final : public End {
 public:
  PumpedEnd(EndId id, typename P::Options options)
      : End(std::move(id)), pump_(make_pump(*this, std::move(options))) {
    this->has_pump_ = pump_.is_driven();
  }
  Result<bool> progress_pump() override { return pump_.progress(); }
  [[nodiscard]] const Error* broken() const noexcept override { return pump_.broken(); }
  [[nodiscard]] bool drained() noexcept override { return pump_.drained(); }
  [[nodiscard]] bool settled() const noexcept override { return pump_.settled(); }
  [[nodiscard]] bool seeks() const noexcept override { return pump_.seeks(); }
  [[nodiscard]] std::optional<HeldUp> held_up() const override { return pump_.held_up(); }
  void expect(uint64_t messages) noexcept override { pump_.expect(messages); }
  void observe(StepObserver* observer) override { pump_.observe(observer); }

 private:
  static P make_pump(PumpedEnd& end, typename P::Options options) {
    if constexpr (std::is_same_v<End, RecvEnd> &&
                  std::is_constructible_v<P, const ConnectionKey&, typename P::Options,
                                          const RecvConnection*>) {
      return P(end.key(), std::move(options), &end.connection());
    } else {
      return P(end.key(), std::move(options));
    }
  }
  Result<bool> try_connect() override {
    PLEXUS_TRY(connected, pump_.progress_connect());
    this->hold(pump_.fifo().held_bytes() + pump_.held_bytes());
    if (connected && !this->connected()) {
      const PumpFifo& fifo = pump_.fifo();
      if constexpr (std::is_same_v<End, SendEnd>) {
        this->offer(fifo.send_connection(this->key().peer, pump_.reach()));
      } else if constexpr (std::is_same_v<End, RecvEnd>) {
        this->offer(fifo.recv_connection(this->key().peer));
      } else {
        this->offer(fifo.device_view());
      }
    }
    return connected;
  }
  [[nodiscard]] std::string route() const override { return pump_.route(); }

  P pump_;
};

}  // namespace plexus
