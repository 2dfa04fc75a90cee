// SPDX-License-Identifier: Apache-2.0
#include "core/tuning/rates.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

namespace plexus {
namespace {

constexpr std::string_view kTitle = "plexus rates 1";
constexpr uint64_t kTimeMostNs = 10'000'000'000;
constexpr const char* kCopyMethodNames[kCopyMethods] = {"slots", "attach", "mapped"};

bool is_time(uint64_t ns) { return ns > 0 && ns <= kTimeMostNs; }

/// A pair that is there has all times but perhaps those of attach.
bool is_plausible(const PairRates& pair) {
  bool plausible = is_time(pair.line_ns);
  const auto& attach = pair.exchange_ns[static_cast<size_t>(CopyMethod::kAttach)];
  for (size_t size = 0; size < kRatesBytes.size(); ++size) {
    plausible = plausible &&
                is_time(pair.exchange_ns[static_cast<size_t>(CopyMethod::kThroughSlots)][size]) &&
                is_time(pair.exchange_ns[static_cast<size_t>(CopyMethod::kMapped)][size]) &&
                (attach.front() == 0 ? attach[size] == 0 : is_time(attach[size]));
  }
  return plausible;
}

PairRates worst_of(const PairRates& a, const PairRates& b) {
  if (a.line_ns == 0 || b.line_ns == 0) {
    return a.line_ns == 0 ? b : a;
  }
  PairRates worst;
  worst.line_ns = std::max(a.line_ns, b.line_ns);
  for (size_t method = 0; method < kCopyMethods; ++method) {
    for (size_t size = 0; size < kRatesBytes.size(); ++size) {
      const uint64_t one = a.exchange_ns[method][size];
      const uint64_t other = b.exchange_ns[method][size];
      worst.exchange_ns[method][size] = one == 0 || other == 0 ? 0 : std::max(one, other);
    }
  }
  return worst;
}

void append_pair(std::string& text, std::string_view distance, const PairRates& pair) {
  text += fmt::format("{} line {}\n", distance, pair.line_ns);
  for (size_t method = 0; method < kCopyMethods; ++method) {
    text += fmt::format("{} {}", distance, kCopyMethodNames[method]);
    for (const uint64_t ns : pair.exchange_ns[method]) {
      text += fmt::format(" {}", ns);
    }
    text += '\n';
  }
}

/// Takes a text apart from its beginning; broken() once something is not as expected.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}
  [[nodiscard]] bool broken() const { return broken_; }
  [[nodiscard]] bool at_end() const { return rest_.empty(); }
  [[nodiscard]] bool begins_with(std::string_view text) const { return rest_.starts_with(text); }

  void expect(std::string_view text) {
    broken_ = broken_ || !rest_.starts_with(text);
    rest_.remove_prefix(broken_ ? rest_.size() : text.size());
  }
  uint64_t take_number() {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    broken_ = broken_ || error != std::errc();
    rest_.remove_prefix(broken_ ? rest_.size() : static_cast<size_t>(end - rest_.data()));
    return number;
  }

 private:
  std::string_view rest_;
  bool broken_ = false;
};

PairRates take_pair(Reader& reader, std::string_view distance) {
  PairRates pair;
  reader.expect(distance);
  reader.expect(" line ");
  pair.line_ns = reader.take_number();
  reader.expect("\n");
  for (size_t method = 0; method < kCopyMethods; ++method) {
    reader.expect(distance);
    reader.expect(" ");
    reader.expect(kCopyMethodNames[method]);
    for (uint64_t& ns : pair.exchange_ns[method]) {
      reader.expect(" ");
      ns = reader.take_number();
    }
    reader.expect("\n");
  }
  return pair;
}

std::string title_of(std::string_view host) { return fmt::format("{}\nhost {}\n", kTitle, host); }

}  // namespace

const char* name(CopyMethod method) { return kCopyMethodNames[static_cast<size_t>(method)]; }

double PairRates::time_ns(CopyMethod method, uint64_t size_bytes) const {
  const auto& times = exchange_ns[static_cast<size_t>(method)];
  const auto size = static_cast<double>(size_bytes);
  if (size_bytes >= kRatesBytes.back()) {
    return static_cast<double>(times.back()) * size / static_cast<double>(kRatesBytes.back());
  }
  const auto above = static_cast<size_t>(
      std::upper_bound(kRatesBytes.begin(), kRatesBytes.end(), size_bytes) - kRatesBytes.begin());
  if (above == 0) {
    return static_cast<double>(times.front());
  }
  const auto low = static_cast<double>(kRatesBytes[above - 1]);
  const auto high = static_cast<double>(kRatesBytes[above]);
  const double share = (size - low) / (high - low);
  return static_cast<double>(times[above - 1]) * (1 - share) +
         static_cast<double>(times[above]) * share;
}

bool is_plausible(const HostRates& rates) {
  return is_plausible(rates.near) &&
         (rates.far.line_ns == 0 ? rates.far == PairRates{} : is_plausible(rates.far));
}

const HostRates& built_in_rates() {
  static const HostRates kRates = {
      .near = {.line_ns = 57,
               .exchange_ns = {{{280, 620, 2100, 9300, 43000, 165000},
                                {1740, 2550, 5760, 18800, 81000, 360000},
                                {130, 220, 810, 2900, 19200, 75000}}}},
      .far = {}};
  return kRates;
}

HostRates worst_of(const HostRates& a, const HostRates& b) {
  return {.near = worst_of(a.near, b.near), .far = worst_of(a.far, b.far)};
}

std::string format_rates(const HostRates& rates, std::string_view host) {
  std::string text = title_of(host);
  append_pair(text, "near", rates.near);
  if (rates.far.line_ns > 0) {
    append_pair(text, "far", rates.far);
  }
  return text;
}

Result<HostRates> parse_rates(std::string_view text, std::string_view host) {
  Reader reader(text);
  reader.expect(title_of(host));
  HostRates rates;
  if (!reader.broken()) {
    rates.near = take_pair(reader, "near");
    if (reader.begins_with("far")) {
      rates.far = take_pair(reader, "far");
    }
  }
  if (reader.broken() || !reader.at_end() || !is_plausible(rates)) {
    return fail(Code::kInvalidArgument, "is not a file of rates measured on this host");
  }
  return rates;
}

}  // namespace plexus
