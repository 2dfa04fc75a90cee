// SPDX-License-Identifier: Apache-2.0
// Resources of a process from the kernel: descriptors, threads, signal handlers. The difference
// between two snapshots shows what a plugin left behind.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "core/base/result.hpp"

namespace plexus::conformance {

/// Descriptor -> its target ("socket:[1234]").
using Descriptors = std::map<int, std::string>;
[[nodiscard]] Descriptors list_descriptors();

/// A snapshot of descriptors and threads. `use`: what happened since, for messages: "60 connections
/// came and went".
class Holdings {
 public:
  Holdings();
  /// Descriptors opened since, as text; "": none.
  [[nodiscard]] std::string opened() const;
  [[nodiscard]] Result<void> expect_no_descriptors(const char* use) const;
  [[nodiscard]] Result<void> expect_no_threads(const char* use) const;
  [[nodiscard]] Result<void> expect_nothing_more(const char* use) const;

 private:
  Descriptors descriptors_;
  uint32_t threads_;
};

/// State that a library must not change: signal handlers, the environment, the working folder, the
/// umask, the rounding mode and the locale.
class Surroundings {
 public:
  Surroundings();
  /// The Error says what was changed and how. `who`: "it".
  [[nodiscard]] Result<void> expect_unchanged(const char* who) const;

 private:
  static constexpr size_t kSignals = 32;
  using Handlers = std::array<std::uintptr_t, kSignals>;
  static Handlers list_handlers();
  /// "the umask" -> its value.
  using States = std::map<std::string, std::string>;
  static States list_rest();
  Handlers handlers_;
  States rest_;
};

}  // namespace plexus::conformance
