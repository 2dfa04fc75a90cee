// SPDX-License-Identifier: Apache-2.0
// How the workers of one benchmark stay in step and agree on numbers, apart from the library under
// test: `Control`, alone or through memory that threads or forked processes share.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/base/result.hpp"

namespace plexus::perf {

enum class Fold { kMax, kSum };

/// Called by every worker in the same order. Fails when another worker gave up.
class Control {
 public:
  virtual ~Control() = default;
  virtual Result<void> barrier() = 0;
  /// Element-wise over the workers; all get the result. At most kFoldMax values.
  virtual Result<void> fold(std::span<double> values, Fold how) = 0;

  static constexpr size_t kFoldMax = 1024;
};

/// One worker has nobody to wait for.
class AloneControl final : public Control {
 public:
  Result<void> barrier() override { return ok(); }
  Result<void> fold(std::span<double> /*values*/, Fold /*how*/) override { return ok(); }
};

/// Memory that all workers of this host share: made before they are, by threads used as it is, by
/// processes inherited through fork.
class SharedArea {
 public:
  [[nodiscard]] static Result<SharedArea> create(int nworkers);

  /// Worker 0 gives the unique id; `wait_id` fails when worker 0 gave up.
  void put_id(std::span<const std::byte> id) noexcept;
  [[nodiscard]] Result<void> wait_id(std::span<std::byte> id) const;

  struct Failure {
    Code code;
    std::string message;
  };
  /// `worker` gives up, and says why. The others' barriers fail from now on.
  void give_up(int worker, const Error& error) noexcept;
  [[nodiscard]] std::optional<Failure> failure_of(int worker) const;

  [[nodiscard]] std::unique_ptr<Control> make_control(int worker);

  static constexpr size_t kIdBytes = 128;

 private:
  struct Layout;
  struct Unmap {
    size_t size_bytes;
    void operator()(Layout* layout) const noexcept;
  };
  friend class SharedControl;
  SharedArea(std::unique_ptr<Layout, Unmap> layout, int nworkers)
      : layout_(std::move(layout)), nworkers_(nworkers) {}
  std::unique_ptr<Layout, Unmap> layout_;
  int nworkers_;
};

}  // namespace plexus::perf
