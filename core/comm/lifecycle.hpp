// SPDX-License-Identifier: Apache-2.0
// The states of a communicator after it was made: what is possible in each, and its end.
// Threads: abort() and async_error() from any at any time; the rest as the communicator's calls.
//
//   PLEXUS_TRY(check_usable(*comm));
//   PLEXUS_TRY(finalize(*comm));
//   return destroy(process, comm);
#pragma once

#include "core/base/result.hpp"

namespace plexus {

class Communicator;
class Process;

/// kSuccess: ready. kInProgress: init, split or finalize under way. Else: the error that stays.
Code async_error(Communicator& comm) noexcept;

/// Ready for calls: else an Error when init is in progress (kInvalidArgument), it was revoked or
/// finalized (kInvalidUsage), or has failed (its error).
Result<void> check_usable(Communicator& comm) noexcept;
/// Why it is stopped. Another thread may have ended it (ncclCommAbort).
Error describe_stop(Communicator& comm);
/// Can it have children? As check_usable, but a revoked one can.
Result<void> check_splittable(Communicator& comm) noexcept;
/// Can it be shrunk? As check_usable, but one that was revoked or has failed can, if its init had
/// succeeded.
Result<void> check_shrinkable(Communicator& comm) noexcept;

Result<void> finalize(Communicator& comm);
/// In a group at its end. kInvalidArgument: `comm`, which may be any address, is not live.
Result<void> destroy(Process& process, Communicator* comm);
/// Ends all waiting of this rank and of its peers, then frees it; in another thread, if one of its
/// threads does not leave a plugin's function at once. Errors as destroy(). Bounded by a second.
Result<void> abort(Process& process, Communicator* comm);
/// From now on only split, shrink and destroy are possible. Threads: any; a call that another one
/// is in returns an Error. Bounded as abort().
Result<void> revoke(Communicator& comm);
/// After stop_with(): until no call of it is under way, bounded as abort().
void wait_stopped(Communicator& comm);

}  // namespace plexus
