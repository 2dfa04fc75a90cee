// SPDX-License-Identifier: Apache-2.0
// The ABI boundary of this library: every function of the CUDA runtime is one statement behind
// `call`, which keeps the thread's last error, as CUDA does, and lets nothing be thrown through.
#pragma once

#include <exception>
#include <new>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "integrations/cudart/include/driver_types.h"

#define PLEXUS_CUDART extern "C" __attribute__((visibility("default")))

namespace plexus::cudart {

/// How a function may be used.
enum class Use {
  kAnywhere,   // also in a host function of a stream, and in a child made by fork
  kPermitted,  // not there, as CUDA has it
};

/// The function that this thread is in, for sentences; nullptr: none.
class CallName {
 public:
  explicit CallName(const char* name) noexcept;
  ~CallName();
  CallName(const CallName&) = delete;
  CallName& operator=(const CallName&) = delete;

 private:
  const char* const outer_;  // a function that calls another
};

/// Its name; nullptr: the thread is in none.
const char* current_function() noexcept;
/// cudaSuccess, or why this process or thread may not make calls.
cudaError_t check_use() noexcept;
/// Remembers what cudaGetLastError returns.
cudaError_t note(cudaError_t result) noexcept;
/// One line of the log (NCCL_DEBUG=WARN): "cudaFree: ..."; returns `code`.
cudaError_t refuse_with(cudaError_t code, std::string_view text) noexcept;

/// `return refuse(cudaErrorInvalidValue, "{} is NULL", what);`
template <class... Args>
cudaError_t refuse(cudaError_t code, fmt::format_string<Args...> text, Args&&... args) {
  return refuse_with(code, fmt::format(text, std::forward<Args>(args)...));
}

template <class Body>
cudaError_t call(const char* name, const Body& body, Use use = Use::kPermitted) noexcept {
  const CallName named(name);
  try {
    if (use == Use::kPermitted) {
      if (const cudaError_t result = check_use(); result != cudaSuccess) {
        return note(result);
      }
    }
    return note(body());
  } catch (const std::bad_alloc&) {
    return note(cudaErrorMemoryAllocation);
  } catch (const std::exception& exception) {
    return note(refuse_with(cudaErrorUnknown, exception.what()));
  }
}

}  // namespace plexus::cudart

/// `if (...) return ...;` of a step that may fail.
#define PLEXUS_CUDART_TRY(expression)                                                     \
  do {                                                                                    \
    if (const cudaError_t result_of_step = (expression); result_of_step != cudaSuccess) { \
      return result_of_step;                                                              \
    }                                                                                     \
  } while (false)
