// SPDX-License-Identifier: Apache-2.0
// Tells ThreadSanitizer, which sees one process, that what another process sends comes after what
// this one has sent before. Programs rely on that order also between threads of one process: a rank
// overwrites a chunk that its neighbour has read in place, because a message that came round
// through other processes follows from that reading (kernels/program/happens_before.hpp).
#pragma once

#ifdef __SANITIZE_THREAD__
extern "C" {
void __tsan_acquire(void* address);  // NOLINT: the sanitizer's names
void __tsan_release(void* address);  // NOLINT
}
#endif

namespace plexus {

#ifdef __SANITIZE_THREAD__
inline char outside_of_process;  // NOLINT: an address
inline void note_sent_outside() noexcept { __tsan_release(&outside_of_process); }
inline void note_heard_from_outside() noexcept { __tsan_acquire(&outside_of_process); }
#else
inline void note_sent_outside() noexcept {}
inline void note_heard_from_outside() noexcept {}
#endif

}  // namespace plexus
