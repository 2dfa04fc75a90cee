// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/public_fit.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <tuple>

#include <fmt/ranges.h>

namespace plexus {
namespace {

constexpr size_t kPerGpu = sizeof(GpuCosts) / sizeof(double);
constexpr size_t kPerNetwork = sizeof(NetworkCosts) / sizeof(double);
constexpr size_t kFirstNetwork = kGpuFamilies * kPerGpu;
constexpr size_t kFirstShared = kFirstNetwork + kNetworks * kPerNetwork;
constexpr size_t kNumbers = sizeof(FittedCosts) / sizeof(double);
using Numbers = std::array<double, kNumbers>;
constexpr size_t kNvlsUs = offsetof(GpuCosts, nvls_us) / sizeof(double);
constexpr size_t kNvls = offsetof(GpuCosts, nvls_efficiency) / sizeof(double);

constexpr size_t block_of(GpuFamily kind) { return static_cast<size_t>(kind) * kPerGpu; }
constexpr size_t block_of(Network network) {
  return kFirstNetwork + static_cast<size_t>(network) * kPerNetwork;
}

// Where the search begins: orders of magnitude of the literature and of NCCL's own model.
constexpr GpuCosts kGpuStart = {.start_us = 6,
                                .hop_us = {1, 2, 4},
                                .lane_gb_per_s = {15, 25, 25},
                                .efficiency = {0.8, 0.9, 0.95},
                                .tree_efficiency = 0.5,
                                .nvls_us = 28,
                                .nvls_efficiency = 0.9,
                                .p2p_us = 3,
                                .p2p_efficiency = 0.85};
constexpr FittedCosts kStart = {.gpus = {kGpuStart, kGpuStart, kGpuStart, kGpuStart, kGpuStart},
                                .networks = {{{5, 2, 0.93, 0.3},
                                              {5, 2, 0.93, 0.3},
                                              {20, 2, 0.93, 3},
                                              {20, 2, 0.93, 3},
                                              {100, 2, 0.7, 15},
                                              {20, 2, 0.93, 3},
                                              {20, 2, 0.93, 3},
                                              {45, 2, 0.3, 10},
                                              {20, 2, 0.25, 3}}},
                                .shared = {.chunk_bytes = {16'384, 65'536, 60'000},
                                           .tree_chunk_bytes = 16'000,
                                           .nvls_fill_bytes = 8e6,
                                           .nvls_tree_fill_bytes = 30e6,
                                           .nvls_tree_hop = 1.5,
                                           .nvls_tree_fill = 2,
                                           .ll128_factor = 1.3,
                                           .own_copy = 0.33,
                                           .one_process_us = 4,
                                           .torch_us = 30}};

/// What a number can be, by physics.
struct Bounds {
  Numbers low;
  Numbers high;
};
Bounds make_bounds() {
  Bounds bounds;
  bounds.low.fill(1e-3);
  bounds.high.fill(1e12);
  FittedCosts low = std::bit_cast<FittedCosts>(bounds.low);
  FittedCosts high = std::bit_cast<FittedCosts>(bounds.high);
  for (size_t gpu = 0; gpu < kGpuFamilies; ++gpu) {
    // A byte is on the wire once at least; nominal rates are rounded, by a tenth at most.
    high.gpus[gpu].efficiency = {2, 1.1, 1.1};  // LL's: of half the rate
    high.gpus[gpu].nvls_efficiency = high.gpus[gpu].p2p_efficiency = 1.1;
    high.gpus[gpu].tree_efficiency = 1;
  }
  for (NetworkCosts& network : high.networks) {
    network.efficiency = 1;
    network.simple_factor = 5;
  }
  for (NetworkCosts& network : low.networks) {
    network.message_us = 0.02;
    network.simple_factor = 1;
  }
  high.shared.own_copy = 1;
  return {std::bit_cast<Numbers>(low), std::bit_cast<Numbers>(high)};
}

double loss_of(const std::vector<const Sample*>& samples, const Numbers& numbers) {
  constexpr double kCap = 0.5;
  const auto costs = std::bit_cast<FittedCosts>(numbers);
  double sum = 0;
  for (const Sample* sample : samples) {
    const double off = std::abs(std::log(predict(costs, *sample) / sample->time_us));
    sum += sample->weight * std::min(off, kCap);
  }
  return sum;
}

/// The samples that a number has a part in.
std::array<std::vector<const Sample*>, kNumbers> users_of(const std::vector<Sample>& samples) {
  std::array<std::vector<const Sample*>, kNumbers> users;
  for (const Sample& sample : samples) {
    const size_t gpu = block_of(sample.machine->gpu);
    const size_t network = block_of(sample.machine->network);
    for (size_t i = 0; i < kNumbers; ++i) {
      const bool is_used =
          i >= kFirstShared || (i >= gpu && i < gpu + kPerGpu) ||
          (sample.machine->cluster.nodes > 1 && i >= network && i < network + kPerNetwork);
      if (is_used) {
        users[i].push_back(&sample);
      }
    }
  }
  return users;
}

/// One number after the other, by steps of its logarithm that grow where they help.
Numbers descend(const std::vector<Sample>& samples, Numbers numbers, const Numbers& prior) {
  constexpr int kSweepsMax = 25;
  constexpr double kPenalty = 0.15;
  constexpr double kEnough = 2e-4;  // of the loss
  static const Bounds bounds = make_bounds();
  const auto users = users_of(samples);
  std::array<double, kNumbers> step = {};
  step.fill(0.3);
  double before = HUGE_VAL;
  for (int sweep = 0; sweep < kSweepsMax; ++sweep) {
    double total = 0;
    for (size_t i = 0; i < kNumbers; ++i) {
      const auto loss = [&](double value) {
        const double old = std::exchange(numbers[i], value);
        const double away = std::log(value / prior[i]);
        const double sum = loss_of(users[i], numbers) + kPenalty * away * away;
        numbers[i] = old;
        return sum;
      };
      double best = loss(numbers[i]);
      bool moved = false;
      for (const double sign : {1.0, -1.0}) {
        const double value =
            std::clamp(numbers[i] * std::exp(sign * step[i]), bounds.low[i], bounds.high[i]);
        const double now = loss(value);
        if (!moved && now < best - 1e-9) {
          numbers[i] = value;
          best = now;
          moved = true;
        }
      }
      step[i] = moved ? std::min(0.6, step[i] * 1.4) : step[i] / 2;
      total += best;
    }
    if (total > before * (1 - kEnough)) {
      break;
    }
    before = total;
  }
  return numbers;
}

bool is_there(const std::vector<Sample>& samples, GpuFamily kind) {
  return std::any_of(samples.begin(), samples.end(),
                     [&](const Sample& sample) { return sample.machine->gpu == kind; });
}

/// Of each number of GPUs the geometric mean of the generations with NVLink that samples have.
Numbers means_of(const Numbers& numbers, const std::vector<Sample>& samples) {
  Numbers means = std::bit_cast<Numbers>(kStart);
  for (size_t i = 0; i < kPerGpu; ++i) {
    double sum = 0;
    int count = 0;
    for (const GpuFamily kind : {GpuFamily::kAmpere, GpuFamily::kHopper, GpuFamily::kBlackwell}) {
      // Ampere has no NVLS, whose numbers stay where the search began.
      const bool has_part = kind != GpuFamily::kAmpere || (i != kNvlsUs && i != kNvls);
      if (has_part && is_there(samples, kind)) {
        sum += std::log(numbers[block_of(kind) + i]);
        ++count;
      }
    }
    for (size_t kind = 0; kind < kGpuFamilies && count > 0; ++kind) {
      means[kind * kPerGpu + i] = std::exp(sum / count);
    }
  }
  return means;
}

template <class Row>
std::string row_text(const Row& row) {
  std::string text;
  for (const double value : row) {
    text += fmt::format("{}{:.3g}", text.empty() ? "" : ", ", value);
  }
  return text;
}

}  // namespace

double predict(const FittedCosts& costs, const Sample& sample) {
  return fitted_time_us(costs, *sample.machine, sample.call, sample.way, sample.bytes,
                        sample.setup);
}

void weigh(std::vector<Sample>& samples) {
  constexpr size_t kSmall = 64 << 10;
  constexpr size_t kLarge = 16 << 20;
  const auto key = [](const Sample& sample) {
    return std::tuple(sample.label, sample.machine->cluster.nodes, sample.call,
                      sample.bytes < kSmall    ? 0
                      : sample.bytes <= kLarge ? 1
                                               : 2);
  };
  constexpr int kFew = 9;  // rows, below which a single one does not count for more
  std::map<decltype(key(samples.front())), int> counts;
  for (const Sample& sample : samples) {
    ++counts[key(sample)];
  }
  for (Sample& sample : samples) {
    sample.weight = 1 / std::sqrt(std::max(kFew, counts[key(sample)]));
  }
}

FittedCosts fit(const std::vector<Sample>& samples) {
  const auto start = std::bit_cast<Numbers>(kStart);
  const Numbers first = descend(samples, start, start);
  const Numbers means = means_of(first, samples);
  Numbers numbers = first;
  for (size_t i = 0; i < kFirstNetwork; ++i) {
    if (!is_there(samples, static_cast<GpuFamily>(i / kPerGpu))) {
      numbers[i] = means[i];
    }
  }
  return std::bit_cast<FittedCosts>(descend(samples, numbers, means));
}

std::string format_costs(const FittedCosts& costs) {
  std::string text = "constexpr FittedCosts kCosts = {\n    .gpus = {{\n";
  for (size_t kind = 0; kind < kGpuFamilies; ++kind) {
    const GpuCosts& gpu = costs.gpus[kind];
    text += fmt::format(
        "        // {}\n        {{.start_us = {:.3g},\n         .hop_us = {{{}}},\n"
        "         .lane_gb_per_s = {{{}}},\n         .efficiency = {{{}}},\n"
        "         .tree_efficiency = {:.3g},\n         .nvls_us = {:.3g},\n"
        "         .nvls_efficiency = {:.3g},\n         .p2p_us = {:.3g},\n"
        "         .p2p_efficiency = {:.3g}}},\n",
        name(static_cast<GpuFamily>(kind)), gpu.start_us, row_text(gpu.hop_us),
        row_text(gpu.lane_gb_per_s), row_text(gpu.efficiency), gpu.tree_efficiency, gpu.nvls_us,
        gpu.nvls_efficiency, gpu.p2p_us, gpu.p2p_efficiency);
  }
  text += "    }},\n    .networks = {{\n        // in the order of their names\n";
  for (const NetworkCosts& network : costs.networks) {
    text += fmt::format(
        "        {{.hop_us = {:.3g}, .simple_factor = {:.3g}, .efficiency = {:.3g}, .message_us = "
        "{:.3g}}},\n",
        network.hop_us, network.simple_factor, network.efficiency, network.message_us);
  }
  const SharedCosts& shared = costs.shared;
  return text + fmt::format(
                    "    }}}},\n    .shared = {{.chunk_bytes = {{{}}},\n"
                    "               .tree_chunk_bytes = {:.3g},\n"
                    "               .nvls_fill_bytes = {:.3g},\n"
                    "               .nvls_tree_fill_bytes = {:.3g},\n"
                    "               .nvls_tree_hop = {:.3g},\n"
                    "               .nvls_tree_fill = {:.3g},\n"
                    "               .ll128_factor = {:.3g},\n"
                    "               .own_copy = {:.3g},\n"
                    "               .one_process_us = {:.3g},\n"
                    "               .torch_us = {:.3g}}},\n}};\n",
                    row_text(shared.chunk_bytes), shared.tree_chunk_bytes, shared.nvls_fill_bytes,
                    shared.nvls_tree_fill_bytes, shared.nvls_tree_hop, shared.nvls_tree_fill,
                    shared.ll128_factor, shared.own_copy, shared.one_process_us, shared.torch_us);
}

}  // namespace plexus
