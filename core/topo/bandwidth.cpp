// SPDX-License-Identifier: Apache-2.0
#include "core/topo/bandwidth.hpp"

#include <array>
#include <string>
#include <utility>

namespace plexus {
namespace {

constexpr int kSmBlackwell = 100;

constexpr std::array kIntraOld = {40.0F, 30.0F, 20.0F, 18.0F, 15.0F, 12.0F, 10.0F,
                                  9.0F,  7.0F,  6.0F,  5.0F,  4.0F,  3.0F};
constexpr std::array kInterOld = {48.0F, 30.0F, 28.0F, 24.0F, 20.0F, 18.0F, 15.0F,
                                  12.0F, 10.0F, 9.0F,  7.0F,  6.0F,  5.0F,  4.0F,
                                  3.0F,  2.4F,  1.2F,  0.24F, 0.12F};
constexpr std::array kIntraHopper = {60.0F, 50.0F, 40.0F, 30.0F, 24.0F, 20.0F,
                                     15.0F, 12.0F, 11.0F, 6.0F,  3.0F};
constexpr std::array kInterHopper = {48.0F, 45.0F, 42.0F, 40.0F, 30.0F, 24.0F, 22.0F, 20.0F, 17.5F,
                                     15.0F, 12.0F, 6.0F,  3.0F,  2.4F,  1.2F,  0.24F, 0.12F};
constexpr std::array kIntraBlackwell = {90.0F, 80.0F, 70.0F, 60.0F, 50.0F, 45.0F,
                                        40.0F, 30.0F, 24.0F, 20.0F, 19.0F, 18.0F};
constexpr std::array kInterBlackwell = {96.0F, 86.0F, 80.0F, 48.0F, 45.1F, 42.0F, 40.0F,
                                        30.0F, 24.0F, 22.0F, 20.0F, 17.5F, 15.0F, 12.0F,
                                        6.0F,  3.0F,  2.4F,  1.2F,  0.24F, 0.12F};

float intel_gb_per_s(const CpuKind& cpu) {
  constexpr int kFamily = 6;
  constexpr std::array<std::pair<int, float>, 3> kModels = {
      {{0xCF, 40.0F}, {0x8F, 22.0F}, {0x55, 10.0F}}};
  constexpr float kOlder = 6.0F;
  for (const auto& [model, gb_per_s] : kModels) {
    if (cpu.family == kFamily && cpu.model >= model) {
      return gb_per_s;
    }
  }
  return kOlder;
}

}  // namespace

float nvlink_gb_per_s(int sm) {
  constexpr int kSmWithNarrowLinks = 86;
  constexpr float kNarrow = 12;
  constexpr float kUnknown = 20;
  constexpr std::array<std::pair<int, float>, 4> kLinks = {
      {{kSmBlackwell, 40.1F}, {kSmHopper, 20.6F}, {70, 20.0F}, {60, 18.0F}}};
  if (sm == kSmWithNarrowLinks) {
    return kNarrow;
  }
  for (const auto& [from, gb_per_s] : kLinks) {
    if (sm >= from) {
      return gb_per_s;
    }
  }
  return kUnknown;
}

float pci_gb_per_s(std::string_view speed, int width) {
  // Speed per lane in units of 100 Mb/s.
  constexpr std::array<std::pair<std::string_view, float>, 6> kLanes = {
      {{"2.5", 15}, {"5", 30}, {"8", 60}, {"16", 120}, {"32", 240}, {"64", 480}}};
  constexpr float kGen3 = 60;
  constexpr int kDefaultWidth = 16;
  constexpr float kUnitsPerGbPerS = 80;
  std::string_view number = speed.substr(0, speed.find(' '));
  if (number.ends_with(".0")) {
    number.remove_suffix(2);
  }
  float lane = kGen3;
  for (const auto& [spelling, value] : kLanes) {
    if (number == spelling) {
      lane = value;
    }
  }
  return static_cast<float>(width == 0 ? kDefaultWidth : width) * lane / kUnitsPerGbPerS;
}

float cpu_to_cpu_gb_per_s(const CpuKind& cpu) {
  constexpr float kPower9 = 32;
  constexpr float kArm = 6;
  constexpr float kAmd = 16;
  constexpr float kZhaoxin = 6;
  constexpr float kYongfeng = 9;
  constexpr int kYongfengFamily = 7;
  constexpr int kYongfengModel = 0x5B;
  if (cpu.arch == CpuArch::kPower) {
    return kPower9;
  }
  if (cpu.arch == CpuArch::kArm) {
    return kArm;
  }
  if (cpu.arch == CpuArch::kX86) {
    switch (cpu.vendor) {
      case CpuVendor::kIntel:
        return intel_gb_per_s(cpu);
      case CpuVendor::kAmd:
        return kAmd;
      case CpuVendor::kZhaoxin:
        return cpu.family == kYongfengFamily && cpu.model == kYongfengModel ? kYongfeng : kZhaoxin;
      case CpuVendor::kOther:
        break;
    }
  }
  return kLocalGbPerS;
}

std::span<const float> channel_speeds(int sm_min, bool inter) {
  if (sm_min >= kSmBlackwell) {
    return inter ? std::span<const float>(kInterBlackwell) : kIntraBlackwell;
  }
  if (sm_min >= kSmHopper) {
    return inter ? std::span<const float>(kInterHopper) : kIntraHopper;
  }
  return inter ? std::span<const float>(kInterOld) : kIntraOld;
}

}  // namespace plexus
