// SPDX-License-Identifier: Apache-2.0
// A program may have enabled floating-point traps for its own arithmetic (feenableexcept). That of
// Plexus (tables over all bit patterns, times of candidates, reductions of what other ranks sent)
// must not raise SIGFPE in it.
#pragma once

#include <cfenv>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace plexus {

/// While it lives, floating-point exceptions of this thread do not trap; when there were traps,
/// they and the flags are afterwards as they were before. Costs two register reads when there are
/// none.
class FloatTrapsOff {
 public:
  FloatTrapsOff() noexcept : had_traps_(has_traps()) {
    if (had_traps_) {
      std::feholdexcept(&programs_);
    }
  }
  ~FloatTrapsOff() {
    if (had_traps_) {
      std::fesetenv(&programs_);
    }
  }
  FloatTrapsOff(const FloatTrapsOff&) = delete;
  FloatTrapsOff& operator=(const FloatTrapsOff&) = delete;

 private:
  static bool has_traps() noexcept {
#if defined(__SSE__)
    if ((_mm_getcsr() & _MM_MASK_MASK) != _MM_MASK_MASK) {
      return true;
    }
#endif
    return ::fegetexcept() != 0;
  }

  const bool had_traps_;
  std::fenv_t programs_;  // set when had_traps_
};

}  // namespace plexus
