// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-chaos/inner.hpp"

#include <cstddef>
#include <dlfcn.h>

namespace plexus::net_chaos {
namespace {

/// The folder of this library with a trailing '/'; empty: unknown.
std::string own_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&plexus_plugin_query), &info) == 0 ||
      info.dli_fname == nullptr) {
    return {};
  }
  const std::string file = info.dli_fname;
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? std::string() : file.substr(0, slash + 1);
}

/// The oldest table that has all entries needed here.
constexpr size_t kTableBytesLeast =
    offsetof(plexus_net_ops_t, net_path) + sizeof(plexus_net_ops_t::net_path);

}  // namespace

Result<const plexus_net_ops_t*> load_inner(const std::string& name) {
  const std::string used = name.empty() ? "socket" : name;
  const bool is_path = used.find('/') != std::string::npos;
  const std::string file = is_path ? used : own_folder() + "libplexus-net-" + used + ".so";
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    return fail(PLEXUS_INVALID_USAGE,
                "PLEXUS_CHAOS_NET={} cannot be loaded: {}; name a libplexus-net-NAME.so beside "
                "net-chaos, or a path",
                used, ::dlerror());
  }
  auto* query =
      reinterpret_cast<decltype(&plexus_plugin_query)>(::dlsym(library, "plexus_plugin_query"));
  if (query == nullptr || query == &plexus_plugin_query) {
    return fail(PLEXUS_INVALID_USAGE,
                "PLEXUS_CHAOS_NET={} ({}) is not another plugin of Plexus's interface; for one of "
                "NCCL's set PLEXUS_CHAOS_NET=nccl and PLEXUS_NCCL_NET to its name",
                used, file);
  }
  const plexus_plugin_t* plugin = query(PLEXUS_HOST_ABI);
  if (plugin == nullptr || plugin->magic != PLEXUS_PLUGIN_MAGIC ||
      plugin->abi_major != PLEXUS_ABI_MAJOR || plugin->kind != PLEXUS_KIND_NET ||
      plugin->net == nullptr || plugin->net->struct_size < kTableBytesLeast) {
    return fail(PLEXUS_INVALID_USAGE,
                "PLEXUS_CHAOS_NET={} ({}) is not a net plugin of ABI {}.{}; rebuild it", used, file,
                PLEXUS_ABI_MAJOR, PLEXUS_ABI_MINOR);
  }
  return plugin->net;
}

}  // namespace plexus::net_chaos
