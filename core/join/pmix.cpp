// SPDX-License-Identifier: Apache-2.0
#include "core/join/pmix.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <mutex>
#include <optional>
#include <pmix.h>

#include "core/base/stdio_held.hpp"
#include "guest/thread.hpp"

namespace plexus {
namespace {

constexpr const char* kLibrary = "libpmix.so.2";
constexpr const char* kPmixKey = "plexus.id";

/// The functions of libpmix that are used here. The library is never unloaded: it has threads.
struct Pmix {
  decltype(&::PMIx_Init) init = nullptr;
  decltype(&::PMIx_Finalize) finalize = nullptr;
  decltype(&::PMIx_Put) put = nullptr;
  decltype(&::PMIx_Commit) commit = nullptr;
  decltype(&::PMIx_Fence_nb) fence = nullptr;
  decltype(&::PMIx_Get) get = nullptr;
  decltype(&::PMIx_Error_string) error_string = nullptr;
  decltype(&::PMIx_Value_destruct) destruct = nullptr;

  template <class Function>
  static bool find(void* library, const char* name, Function* function) {
    void* const found = ::dlsym(library, name);
    std::memcpy(function, &found, sizeof(found));
    return found != nullptr;
  }
  static Result<Pmix> load() {
    // Its own plugins look for its symbols in the whole process.
    void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    Pmix made;
    if (library == nullptr || !find(library, "PMIx_Init", &made.init) ||
        !find(library, "PMIx_Finalize", &made.finalize) || !find(library, "PMIx_Put", &made.put) ||
        !find(library, "PMIx_Commit", &made.commit) ||
        !find(library, "PMIx_Fence_nb", &made.fence) || !find(library, "PMIx_Get", &made.get) ||
        !find(library, "PMIx_Error_string", &made.error_string) ||
        !find(library, "PMIx_Value_destruct", &made.destruct)) {
      const char* const why = ::dlerror();  // NOLINT(concurrency-mt-unsafe): of this thread
      return fail(Code::kInvalidUsage, "{} cannot be used: {}", kLibrary,
                  why == nullptr ? "a function is missing" : why);
    }
    return made;
  }

  Result<void> check(pmix_status_t status, const char* call) const {
    if (status == PMIX_SUCCESS) {
      return ok();
    }
    return fail(Code::kSystemError, "{} failed: {} ({})", call, error_string(status), status);
  }
};

/// Waits for the end of a call of PMIx, which may outlive whoever waits for it.
class Ending {
 public:
  static void end(pmix_status_t status, void* data) {
    const std::unique_ptr<std::shared_ptr<Ending>> self(
        static_cast<std::shared_ptr<Ending>*>(data));
    const std::lock_guard lock((*self)->mutex_);
    (*self)->status_ = status;
    (*self)->ended_.notify_all();
  }
  std::optional<pmix_status_t> wait(const Deadline& deadline) {
    constexpr auto kPause = std::chrono::milliseconds(100);
    std::unique_lock lock(mutex_);
    while (!status_.has_value() && !deadline.expired()) {
      ended_.wait_for(lock, kPause);
    }
    return status_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  std::optional<pmix_status_t> status_;  // guarded by mutex_
};

/// From PMIx_Init to PMIx_Finalize, which PMIx counts: an MPI in this process goes on.
class Session {
 public:
  static Result<std::unique_ptr<Session>> open(const Pmix& pmix) {
    auto session = std::unique_ptr<Session>(new Session(pmix));
    const SignalsBlocked blocked;  // its thread inherits that
    const StdioHeld stdio;
    PLEXUS_TRY(pmix.check(pmix.init(&session->self_, nullptr, 0), "PMIx_Init"));
    session->is_open_ = true;
    return session;
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    if (is_open_) {
      pmix_.finalize(nullptr, 0);
    }
  }

  /// `seconds`: how long the server may take.
  template <class Use>
  Result<void> get(pmix_rank_t rank, const char* key, int seconds, const Use& use) {
    pmix_proc_t whose = self_;
    whose.rank = rank;
    pmix_info_t limit{};
    std::strncpy(limit.key, PMIX_TIMEOUT, PMIX_MAX_KEYLEN);
    limit.value.type = PMIX_INT;
    limit.value.data.integer = seconds;
    pmix_value_t* value = nullptr;
    PLEXUS_TRY(pmix_.check(pmix_.get(&whose, key, &limit, 1, &value),
                           fmt::format("PMIx_Get of {}", key).c_str()));
    const auto destroy = [this](pmix_value_t* owned) {
      pmix_.destruct(owned);
      std::free(owned);  // NOLINT(cppcoreguidelines-owning-memory): made by libpmix
    };
    const std::unique_ptr<pmix_value_t, decltype(destroy)> owner(value, destroy);
    return use(*value);
  }

  Result<int> read_nranks(int seconds) {
    int nranks = 0;
    PLEXUS_TRY(get(
        PMIX_RANK_WILDCARD, PMIX_JOB_SIZE, seconds, [&](const pmix_value_t& value) -> Result<void> {
          constexpr uint32_t kMany = 1 << 30;
          if (value.type != PMIX_UINT32 || value.data.uint32 == 0 || value.data.uint32 > kMany) {
            return fail(Code::kSystemError, "PMIx gives no number of ranks");
          }
          nranks = static_cast<int>(value.data.uint32);
          return ok();
        }));
    return nranks;
  }

  Result<void> put(std::string bytes) {
    pmix_value_t value{};
    value.type = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = bytes.data();
    value.data.bo.size = bytes.size();
    PLEXUS_TRY(pmix_.check(pmix_.put(PMIX_GLOBAL, kPmixKey, &value), "PMIx_Put"));
    return pmix_.check(pmix_.commit(), "PMIx_Commit");
  }

  /// Until all ranks have come, and all have what was put.
  Result<void> fence(const Deadline& deadline) {
    pmix_proc_t all = self_;
    all.rank = PMIX_RANK_WILDCARD;
    pmix_info_t collect{};
    std::strncpy(collect.key, PMIX_COLLECT_DATA, PMIX_MAX_KEYLEN);
    collect.value.type = PMIX_BOOL;
    collect.value.data.flag = true;
    auto ending = std::make_shared<Ending>();
    auto held = std::make_unique<std::shared_ptr<Ending>>(ending);
    const pmix_status_t begun = pmix_.fence(&all, 1, &collect, 1, &Ending::end, held.get());
    if (begun == PMIX_OPERATION_SUCCEEDED) {
      return ok();
    }
    PLEXUS_TRY(pmix_.check(begun, "PMIx_Fence_nb"));
    (void)held.release();  // Ending::end has it
    const auto ended = ending->wait(deadline);
    if (!ended.has_value()) {
      return fail(Code::kTimeout,
                  "not all ranks came to PMIx's fence within PLEXUS_BOOTSTRAP_TIMEOUT: start as "
                  "many processes of this program as the job has ranks");
    }
    return pmix_.check(*ended, "PMIx_Fence_nb");
  }

  Result<std::string> read_value(int seconds) {
    std::string bytes;
    PLEXUS_TRY(get(0, kPmixKey, seconds, [&](const pmix_value_t& value) -> Result<void> {
      if (value.type != PMIX_BYTE_OBJECT || value.data.bo.bytes == nullptr) {
        return fail(Code::kSystemError, "PMIx gives something else than what rank 0 put");
      }
      bytes.assign(value.data.bo.bytes, value.data.bo.size);
      return ok();
    }));
    return bytes;
  }

 private:
  explicit Session(const Pmix& pmix) : pmix_(pmix) {}
  const Pmix pmix_;
  pmix_proc_t self_{};
  bool is_open_ = false;
};

}  // namespace

Result<PmixAnswer> pass_on_by_pmix(int rank,
                                   const std::function<Result<std::string>()>& make_value,
                                   const Deadline& deadline) {
  constexpr int kAnswerS = 60;  // of the server on this host
  PLEXUS_TRY(pmix, Pmix::load());
  PLEXUS_TRY(session, Session::open(pmix));
  PLEXUS_TRY(nranks, session->read_nranks(kAnswerS));
  if (rank == 0) {
    PLEXUS_TRY(value, make_value());
    PLEXUS_TRY(session->put(value));
  }
  PLEXUS_TRY(session->fence(deadline));
  PLEXUS_TRY(value, session->read_value(kAnswerS));
  return PmixAnswer{.nranks = nranks, .value = value};
}

}  // namespace plexus
