// SPDX-License-Identifier: Apache-2.0
// Text workloads of SimAI and ASTRA-sim: a layer a line, with the time of its forward pass, of the
// gradients of its inputs and of its weights, and the collective behind each. A step goes forward
// through the layers and back; collectives of weights run beside what follows.
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "core/base/split_words.hpp"
#include "core/base/text.hpp"
#include "tools/workload/builder.hpp"

namespace plexus {
namespace {

struct SimaiPart {
  double time_us = 0;
  std::string comm;  // in lower case
  uint64_t bytes = 0;
};

struct SimaiLayer {
  std::string name;
  std::array<SimaiPart, 3> parts = {};  // forward, gradients of inputs, of weights
  double update_us = 0;
};

class SimaiReader {
 public:
  Result<void> take_header(std::string_view line) {
    const std::vector<std::string_view> words = split_words(line);
    builder_.work.format = fmt::format("SimAI or ASTRA-sim workload ({})", printable(words[0]));
    for (size_t i = 1; i + 1 < words.size(); ++i) {
      const auto number = whole_number(words[i + 1]);
      for (const auto& [name, target] : {std::pair("model_parallel_NPU_group:", &tensor_),
                                         {"ep:", &expert_},
                                         {"pp:", &pipeline_},
                                         {"all_gpus:", &all_}}) {
        if (words[i] == name && number.has_value() && *number <= kWorkloadRanksMax) {
          *target = std::max<int>(1, static_cast<int>(*number));
        }
      }
    }
    builder_.work.nranks = all_ > 1 ? all_ : 0;
    is_data_ = words[0] == "DATA" || words[0] == "MICRO";
    if (pipeline_ > 1) {
      builder_.note("sends between the stages of the pipeline, which the file does not list");
    }
    return ok();
  }

  Result<void> take_layer(std::string_view line, size_t number) {
    std::vector<std::string_view> words = split_words(line);
    if (words.empty()) {
      return ok();
    }
    constexpr size_t kWords = 11;
    if (words.size() < kWords) {
      return fail(Code::kInvalidArgument,
                  "line {}: expects a name, -1, three of (time, collective, bytes) and the time of "
                  "the update",
                  number);
    }
    SimaiLayer layer{.name = std::string(words[0])};
    for (size_t i = 0; i < layer.parts.size(); ++i) {
      const auto time = real_number(words[2 + 3 * i]);
      const auto bytes = whole_number(words[4 + 3 * i]);
      if (!time.has_value() || *time < 0 || !bytes.has_value()) {
        return fail(Code::kInvalidArgument,
                    "line {}: expects a time in ns, a collective and its bytes, not '{} {} {}'",
                    number, printable(words[2 + 3 * i]), printable(words[3 + 3 * i]),
                    printable(words[4 + 3 * i]));
      }
      layer.parts.at(i) = {
          .time_us = *time / kNsOfUs_, .comm = lower(words[3 + 3 * i]), .bytes = *bytes};
    }
    layer.update_us = words.size() > kWords ? real_number(words[kWords]).value_or(0) / kNsOfUs_ : 0;
    if (layers_.size() == kWorkloadCallsMax) {
      return fail(Code::kInvalidArgument, "has more than {} layers", kWorkloadCallsMax);
    }
    layers_.push_back(std::move(layer));
    return ok();
  }

  Result<Workload> finish() && {
    for (const SimaiLayer& layer : layers_) {
      PLEXUS_TRY(add(layer, 0, " forward", false));
    }
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
      PLEXUS_TRY(add(*layer, 1, " input gradients", false));
      PLEXUS_TRY(add(*layer, 2, " weight gradients", true));
    }
    double update_us = 0;
    for (const SimaiLayer& layer : layers_) {
      update_us += layer.update_us;
    }
    if (update_us > 0) {
      PLEXUS_TRY(builder_.add({.kind = WorkKind::kCompute,
                               .time_us = update_us,
                               .name = builder_.name("update of weights"),
                               .after = beside_}));
    }
    builder_.note(
        "times in ns; collectives of weight gradients run beside what follows, others before it");
    return builder_.finish();
  }

 private:
  Result<void> add(const SimaiLayer& layer, size_t place, const char* pass, bool beside) {
    const SimaiPart& part = layer.parts.at(place);
    uint32_t computed = 0;
    if (part.time_us > 0) {
      PLEXUS_TRY(number, builder_.add({.kind = WorkKind::kCompute,
                                       .time_us = part.time_us,
                                       .name = builder_.name(layer.name + pass)}));
      computed = number;
    }
    if (part.comm == "none" || part.bytes == 0) {
      return ok();
    }
    const auto collective = find_collective(part.comm);
    if (!collective.has_value()) {
      builder_.leave_out(printable(part.comm));
      return ok();
    }
    WorkloadCall call{.collective = *collective,
                      .bytes = part.bytes,
                      .group = group_of(part.comm, place),
                      .stream = beside ? 1U : 0U};
    if (beside && part.time_us > 0) {
      call.after.push_back(computed);
    }
    PLEXUS_TRY(number, builder_.add(std::move(call)));
    if (beside) {
      beside_.push_back(number);
    }
    return ok();
  }

  /// By the word's end, as SimAI writes it; else weights are of the data-parallel group, the rest
  /// of the tensor-parallel one, which if it is one rank is that, too.
  uint32_t group_of(std::string_view comm, size_t place) {
    const int model = tensor_ * pipeline_;
    if (comm.ends_with("_dp_ep")) {
      return builder_.group("dp_ep", 0, model * expert_);
    }
    if (comm.ends_with("_ep")) {
      return expert_ > 1 ? builder_.group("ep", expert_) : builder_.group("dp", 0, model);
    }
    if (is_data_ || (place == 2 && tensor_ == 1 && pipeline_ == 1)) {
      return 0;
    }
    return place == 2 || tensor_ == 1 ? builder_.group("dp", 0, model)
                                      : builder_.group("tp", tensor_);
  }

  static constexpr double kNsOfUs_ = 1000;
  WorkloadBuilder builder_{"SimAI or ASTRA-sim workload"};
  int tensor_ = 1;
  int expert_ = 1;
  int pipeline_ = 1;
  int all_ = 0;
  bool is_data_ = false;
  std::vector<SimaiLayer> layers_;
  std::vector<uint32_t> beside_;  // collectives of weights
};

}  // namespace

Result<Workload> read_simai(std::string_view text) {
  SimaiReader reader;
  std::string_view header = take_line(text);
  while (split_words(header).empty() && !text.empty()) {
    header = take_line(text);
  }
  PLEXUS_TRY(reader.take_header(header));
  take_line(text);  // the number of layers, which the lines say
  for (size_t number = 3; !text.empty(); ++number) {
    PLEXUS_TRY(reader.take_layer(take_line(text), number));
  }
  return std::move(reader).finish();
}

}  // namespace plexus
