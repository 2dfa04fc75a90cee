// SPDX-License-Identifier: Apache-2.0
#include "core/os/cpu_set.hpp"

#include <cerrno>

namespace plexus {

std::optional<CpuSet> CpuSet::of_thread() {
  constexpr size_t kPartsMax = 1024;  // a million cores
  for (size_t parts = 1; parts <= kPartsMax; parts *= 2) {
    CpuSet set(parts);
    if (sched_getaffinity(0, set.size_bytes(), set.parts_.data()) == 0) {
      return set.count() > 0 ? std::optional(std::move(set)) : std::nullopt;
    }
    if (errno != EINVAL) {  // the kernel's sets are larger
      return std::nullopt;
    }
  }
  return std::nullopt;
}

CpuSet CpuSet::all(const CpuSet& like) {
  CpuSet set(like.parts_.size());
  for (size_t core = 0; core < set.end(); ++core) {
    CPU_SET_S(core, set.size_bytes(), set.parts_.data());
  }
  return set;
}

CpuSet CpuSet::one(const CpuSet& like, size_t core) {
  CpuSet set(like.parts_.size());
  CPU_SET_S(core, set.size_bytes(), set.parts_.data());
  return set;
}

bool CpuSet::apply() const noexcept {
  return sched_setaffinity(0, size_bytes(), parts_.data()) == 0;
}

bool CpuSet::has(size_t core) const noexcept {
  return core < end() && CPU_ISSET_S(core, size_bytes(), parts_.data()) != 0;
}

int CpuSet::count() const noexcept { return CPU_COUNT_S(size_bytes(), parts_.data()); }

size_t CpuSet::end() const noexcept { return parts_.size() * CPU_SETSIZE; }

std::string_view CpuSet::bytes() const noexcept {
  return {reinterpret_cast<const char*>(parts_.data()), size_bytes()};
}

}  // namespace plexus
