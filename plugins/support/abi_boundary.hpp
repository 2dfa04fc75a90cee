// SPDX-License-Identifier: Apache-2.0
// The boundary between a plugin's C++ and the C ABI: every entry of a table is one `guard`
// statement. A `Result` becomes a code and an error line; no exception passes.
#pragma once

#include <exception>
#include <new>

#include "plugins/support/log.hpp"
#include "plugins/support/result.hpp"

namespace plexus::plugin {

/// The body of a data-path entry returns its code directly.
inline int32_t to_code(const Log&, int32_t code) noexcept { return code; }

template <class T>
int32_t to_code(const Log& log, const Result<T>& result) noexcept {
  if (result.has_error()) {
    if (!result.error().text.empty()) {  // else another plugin has said it
      log.error(result.error().text.c_str());
    }
    return result.error().code;
  }
  if constexpr (std::is_same_v<T, Progress>) {
    return result.value() == Progress::kDone ? PLEXUS_OK : PLEXUS_AGAIN;
  }
  return PLEXUS_OK;
}

/// Runs `body`, which returns a Result<void>, a Result<Progress> or a code.
template <class Body>
int32_t guard(const Log& log, Body&& body) noexcept {
  try {
    return to_code(log, body());
  } catch (const std::bad_alloc&) {
    log.error("out of memory");
    return PLEXUS_SYSTEM_ERROR;
  } catch (const std::exception& thrown) {
    log.error(thrown.what());
    return PLEXUS_INTERNAL_ERROR;
  } catch (...) {
    log.error("unknown exception");
    return PLEXUS_INTERNAL_ERROR;
  }
}

}  // namespace plexus::plugin
