// SPDX-License-Identifier: Apache-2.0
// The parameter API: settings by the names of their environment variables.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/api/arguments.hpp"
#include "core/api/guard.hpp"
#include "core/base/config.hpp"

namespace plexus {
namespace {

Result<const Setting*> find_setting_row(const char* key) {
  const auto table = settings();
  const auto at = std::find_if(table.begin(), table.end(), [&](const Setting& row) {
    return std::string_view(row.name) == key;
  });
  if (at == table.end()) {
    return fail(Code::kInvalidArgument,
                "{} is not a setting of this library (ncclParamGetAllParameterKeys lists them)",
                key);
  }
  return &*at;
}

/// The user's value, else the default.
std::string current_value(const Setting& row) {
  return setting_value(row.name).value_or(row.default_text);
}

Result<const Setting*> setting_of(ncclParamHandle_t handle) {
  const auto table = settings();
  const auto* const row = reinterpret_cast<const Setting*>(handle);
  if (row < table.data() || row >= table.data() + table.size()) {
    return fail(Code::kInvalidArgument, "the parameter handle is not from ncclParamBind");
  }
  return row;
}

template <class T>
ncclResult_t read_number(ncclParamHandle_t handle, T* value) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(check_pointer(value, "value"));
    PLEXUS_TRY(row, setting_of(handle));
    const std::string text = current_value(*row);
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, *value);
    if (error != std::errc() || rest != end) {
      return fail(Code::kInvalidArgument, "{} is '{}', which is not a number of the requested type",
                  row->name, text);
    }
    return ok();
  });
}

/// Keeps the text of a `const char*` result until the thread's next call.
const char* keep(std::string text) {
  thread_local std::string kept;
  kept = std::move(text);
  return kept.c_str();  // NOLINT(clang-analyzer-cplusplus.InnerPointer): thread_local
}

}  // namespace
}  // namespace plexus

using plexus::check_pointer;
using plexus::guard;
using plexus::ok;
using plexus::Result;

PLEXUS_PUBLIC(ncclResult_t, ncclParamBind, (ncclParamHandle_t * handle, const char* key)) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(check_pointer(handle, "handle"));
    PLEXUS_TRY(check_pointer(key, "key"));
    PLEXUS_TRY(row, plexus::find_setting_row(key));
    // The handle is the row's address; it is only ever compared and read.
    *handle = reinterpret_cast<ncclParamHandle_t>(
        const_cast<plexus::Setting*>(row));  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    return ok();
  });
}

#define PLEXUS_PARAM_GETTER(name, type)                                         \
  /* NOLINTNEXTLINE(bugprone-macro-parentheses): a type takes none */           \
  PLEXUS_PUBLIC(ncclResult_t, name, (ncclParamHandle_t handle, type * value)) { \
    return plexus::read_number<type>(handle, value);                            \
  }
PLEXUS_PARAM_GETTER(ncclParamGetI8, int8_t)
PLEXUS_PARAM_GETTER(ncclParamGetI16, int16_t)
PLEXUS_PARAM_GETTER(ncclParamGetI32, int32_t)
PLEXUS_PARAM_GETTER(ncclParamGetI64, int64_t)
PLEXUS_PARAM_GETTER(ncclParamGetU8, uint8_t)
PLEXUS_PARAM_GETTER(ncclParamGetU16, uint16_t)
PLEXUS_PARAM_GETTER(ncclParamGetU32, uint32_t)
PLEXUS_PARAM_GETTER(ncclParamGetU64, uint64_t)

PLEXUS_PUBLIC(ncclResult_t, ncclParamGetStr, (ncclParamHandle_t handle, const char** value)) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(check_pointer(value, "value"));
    PLEXUS_TRY(row, plexus::setting_of(handle));
    *value = plexus::keep(plexus::current_value(*row));
    return ok();
  });
}

PLEXUS_PUBLIC(ncclResult_t,
              ncclParamGet,
              (ncclParamHandle_t handle, void* value, int maxLen, int* len)) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(check_pointer(value, "value"));
    PLEXUS_TRY(row, plexus::setting_of(handle));
    const std::string text = plexus::current_value(*row);
    const auto needed = static_cast<int>(text.size()) + 1;
    if (maxLen < needed) {
      return plexus::fail(plexus::Code::kInvalidArgument, "{} needs {} bytes, maxLen is {}",
                          row->name, needed, maxLen);
    }
    std::memcpy(value, text.c_str(), static_cast<size_t>(needed));
    if (len != nullptr) {
      *len = needed - 1;
    }
    return ok();
  });
}

PLEXUS_PUBLIC(ncclResult_t,
              ncclParamGetParameter,
              (const char* key, const char** value, int* len)) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(check_pointer(key, "key"));
    PLEXUS_TRY(check_pointer(value, "value"));
    PLEXUS_TRY(row, plexus::find_setting_row(key));
    *value = plexus::keep(plexus::current_value(*row));
    if (len != nullptr) {
      *len = static_cast<int>(std::strlen(*value));
    }
    return ok();
  });
}

PLEXUS_PUBLIC(ncclResult_t, ncclParamGetAllParameterKeys, (const char*** table, int* n)) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(check_pointer(table, "table"));
    PLEXUS_TRY(check_pointer(n, "n"));
    thread_local std::vector<const char*> keys;
    keys.clear();
    for (const plexus::Setting& row : plexus::settings()) {
      keys.push_back(row.name);
    }
    *table = keys.data();
    *n = static_cast<int>(keys.size());
    return ok();
  });
}

PLEXUS_PUBLIC(void, ncclParamDumpAll, (void)) {
  for (const plexus::Setting& row : plexus::settings()) {
    plexus::log(
        plexus::LogLevel::kInfo, plexus::Subsystem::kEnv, __FILE__, __LINE__,
        fmt::format("{}={} ({}; {})", row.name, plexus::current_value(row), row.takes, row.doc));
  }
}
