// SPDX-License-Identifier: Apache-2.0
// Keeps the workers of one benchmark in step and lets them agree on numbers, independently of the
// library under test: `Control`, alone or over memory that threads or forked processes share.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/base/result.hpp"

namespace plexus::perf {

enum class Fold { kMax, kMin, kSum };

[[nodiscard]] double fold_values(double mine, double theirs, Fold how) noexcept;

/// Called by every worker in the same order. Fails when another worker has given up.
class Control {
 public:
  virtual ~Control() = default;
  virtual Result<void> barrier() = 0;
  /// Reduces element by element over the workers; all get the result. At most kFoldMax values.
  virtual Result<void> fold(std::span<double> values, Fold how) = 0;

  static constexpr size_t kFoldMax = 1024;
};

/// For a single worker: nothing to wait for.
class AloneControl final : public Control {
 public:
  Result<void> barrier() override { return ok(); }
  Result<void> fold(std::span<double> /*values*/, Fold /*how*/) override { return ok(); }
};

/// Memory shared by all workers of this host, which is made before they are: threads use it
/// directly, processes inherit it through fork.
class SharedArea {
 public:
  [[nodiscard]] static Result<SharedArea> create(int nworkers);

  /// Worker 0 publishes the unique id; `wait_id` fails when worker 0 has given up.
  void put_id(std::span<const std::byte> id) noexcept;
  [[nodiscard]] Result<void> wait_id(std::span<std::byte> id) const;

  struct Failure {
    Code code;
    std::string message;
  };
  /// `worker` gives up for the given reason. The others' barriers fail from now on.
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
