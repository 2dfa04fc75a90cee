// SPDX-License-Identifier: Apache-2.0
// A library of NCCL's tuner ABI (ncclTunerPlugin_v2 .. v6), driven through its raw table: checks
// see what it writes, and where, before any correction.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugin-api/nccl/tuner.h"

#include "tools/conformance/library.hpp"

namespace plexus::conformance {

/// A call to ask about.
struct TunerQuestion {
  int collective = NCCL_TUNER_ALL_REDUCE;
  size_t size_bytes = 1 << 20;
  int calls_in_group = 1;
  int is_registered = 0;
};

/// The table that a tuner receives, with a row per algorithm, a column per protocol, and guards
/// around it; and the rest of its answer.
class TunerCosts {
 public:
  explicit TunerCosts(int rows = NCCL_TUNER_ALGORITHMS, int columns = NCCL_TUNER_PROTOCOLS);
  [[nodiscard]] float& at(int row, int column);
  [[nodiscard]] float at(int row, int column) const;
  [[nodiscard]] int algorithms() const noexcept { return algorithms_; }
  [[nodiscard]] int protocols() const noexcept { return protocols_; }
  [[nodiscard]] float** raw() noexcept;
  /// Whether nothing was written outside the table.
  [[nodiscard]] bool are_guards_whole() const noexcept;
  bool operator==(const TunerCosts& other) const = default;

  int channels = 0;
  int algorithm = NCCL_TUNER_UNDEFINED;  // these two: only v2
  int protocol = NCCL_TUNER_UNDEFINED;

 private:
  int algorithms_;
  int protocols_;
  std::vector<float> floats_;
};

/// Times as from a model: Tree and Ring with all protocols, nothing else.
[[nodiscard]] TunerCosts make_costs(const TunerQuestion& question);

class NcclTuner {
 public:
  /// The version that the subject names, or else the newest.
  [[nodiscard]] static Result<NcclTuner> load(Fixture& fixture);
  [[nodiscard]] Fixture& fixture() const noexcept { return *fixture_; }
  [[nodiscard]] int version() const noexcept { return table_.version; }
  [[nodiscard]] const std::string& entry() const noexcept { return table_.symbol; }
  [[nodiscard]] std::string name() const;
  [[nodiscard]] size_t size_bytes() const noexcept { return table_.object.size_bytes; }
  [[nodiscard]] const void* table() const noexcept { return table_.object.address; }
  /// All versions begin with v3's entries.
  [[nodiscard]] bool has_entries() const noexcept;

 private:
  NcclTuner(Fixture& fixture, NcclTable table) : fixture_(&fixture), table_(std::move(table)) {}
  Fixture* fixture_;
  NcclTable table_;
};

/// The context of a communicator; destroyed by the destructor.
class NcclTunerSession {
 public:
  struct Comm {
    size_t nranks = 8;
    size_t nnodes = 2;
    uint64_t id = 42;
  };
  [[nodiscard]] static Result<NcclTunerSession> open(const NcclTuner& tuner, const Comm& comm);
  NcclTunerSession(NcclTunerSession&& other) noexcept
      : tuner_(other.tuner_),
        raw_(other.raw_),
        constants_(std::move(other.constants_)),
        domains_(std::move(other.domains_)),
        is_open_(std::exchange(other.is_open_, false)) {}
  NcclTunerSession& operator=(NcclTunerSession&&) = delete;
  ~NcclTunerSession() { (void)close(); }
  /// The plugin's code.
  int32_t close();

  [[nodiscard]] Result<void> ask(const TunerQuestion& question, TunerCosts& costs);
  /// Like `ask`, but returns the code, for questions that may be refused.
  int32_t try_ask(const TunerQuestion& question, TunerCosts& costs);
  /// v6; false: it has no such entry.
  [[nodiscard]] Result<bool> ask_chunk(const TunerQuestion& question,
                                       int algorithm,
                                       int protocol,
                                       size_t& chunk_bytes);
  [[nodiscard]] Monitor& monitor() const noexcept { return tuner_->fixture().monitor(); }
  [[nodiscard]] const NcclTuner& tuner() const noexcept { return *tuner_; }
  /// The constants as init left them (v5 on).
  [[nodiscard]] const nccl_tuner_constants_v5_t& constants() const noexcept { return *constants_; }
  /// Writes garbage over the memory that was valid during init only.
  void take_back();

 private:
  explicit NcclTunerSession(const NcclTuner& tuner);
  const NcclTuner* tuner_;
  void* raw_ = nullptr;
  std::unique_ptr<nccl_tuner_constants_v5_t> constants_;
  std::unique_ptr<nccl_tuner_domains_v5_t> domains_;
  bool is_open_ = false;
};

}  // namespace plexus::conformance
