// SPDX-License-Identifier: Apache-2.0
// Sets of cores of any size: cpu_set_t ends at 1,024, and the kernel refuses masks that are shorter
// than its own.
#pragma once

#include <cstddef>
#include <optional>
#include <sched.h>
#include <string_view>
#include <vector>

namespace plexus {

/// A value.
class CpuSet {
 public:
  /// The cores that this thread may run on; nullopt: the system does not say.
  static std::optional<CpuSet> of_thread();
  /// As large as `like`, with all cores or with one.
  static CpuSet all(const CpuSet& like);
  static CpuSet one(const CpuSet& like, size_t core);

  /// Makes it the set of this thread; false: the system refuses.
  [[nodiscard]] bool apply() const noexcept;
  [[nodiscard]] bool has(size_t core) const noexcept;
  [[nodiscard]] int count() const noexcept;
  /// No core has this number or a higher one.
  [[nodiscard]] size_t end() const noexcept;
  [[nodiscard]] std::string_view bytes() const noexcept;

 private:
  explicit CpuSet(size_t parts) : parts_(parts) {}
  [[nodiscard]] size_t size_bytes() const noexcept { return parts_.size() * sizeof(cpu_set_t); }

  std::vector<cpu_set_t> parts_;  // 1,024 cores each
};

}  // namespace plexus
