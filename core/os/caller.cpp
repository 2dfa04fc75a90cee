// SPDX-License-Identifier: Apache-2.0
#include "core/os/caller.hpp"

#include <array>
#include <cstddef>
#include <dlfcn.h>
#include <execinfo.h>
#include <string_view>

#include <fmt/format.h>

namespace plexus {
namespace {

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

/// libcudart and libcuda over host memory call this library for the program.
bool stands_between(std::string_view name) {
  return name.starts_with("libcudart.so") || name.starts_with("libcuda.so") ||
         name.starts_with("libnccl.so");
}

}  // namespace

const void* find_caller() noexcept {
  constexpr int kDepth = 48;
  std::array<void*, kDepth> frames{};
  const int count = ::backtrace(frames.data(), kDepth);
  Dl_info own{};
  if (::dladdr(reinterpret_cast<const void*>(&find_caller), &own) == 0) {
    return reinterpret_cast<const void*>(&find_caller);
  }
  for (int i = 0; i < count; ++i) {
    const std::byte* const call =
        static_cast<const std::byte*>(frames.at(static_cast<size_t>(i))) - 1;
    Dl_info info{};
    if (::dladdr(call, &info) != 0 && info.dli_fbase != own.dli_fbase &&
        info.dli_fname != nullptr && !stands_between(file_name(info.dli_fname))) {
      return call;
    }
  }
  return reinterpret_cast<const void*>(&find_caller);
}

std::string describe_caller(const void* caller) {
  Dl_info info{};
  if (::dladdr(caller, &info) == 0 || info.dli_fname == nullptr) {
    return "an unknown place";
  }
  const auto offset =
      static_cast<const std::byte*>(caller) - static_cast<std::byte*>(info.dli_fbase);
  const std::string place = fmt::format("{}+{:#x}", file_name(info.dli_fname), offset);
  return info.dli_sname == nullptr ? place : fmt::format("{} ({})", place, info.dli_sname);
}

}  // namespace plexus
