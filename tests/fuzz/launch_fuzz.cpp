// SPDX-License-Identifier: Apache-2.0
// What a launcher says: variables of torchrun, mpirun, srun and PMI, a list of nodes, the answers
// of a PMI server, and the 128 bytes of a unique id. A rank that is found is one of the job's; a
// unique id that is accepted has the bytes that it was made of.
//
// Input: lines NAME=VALUE, and all of it again as each of the others.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/text.hpp"
#include "core/control/unique_id.hpp"
#include "core/join/launched_rank.hpp"
#include "core/join/pmi.hpp"

namespace plexus {
namespace {

void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

void fuzz_variables(std::string_view text) {
  std::map<std::string, std::string, std::less<>> variables;
  for (const std::string_view line : split_list(text, '\n')) {
    const size_t equals = std::min(line.find('='), line.size());
    const std::string_view value = line.substr(std::min(equals + 1, line.size()));
    variables[std::string(line.substr(0, equals))] = value.substr(0, value.find('\0'));
  }
  const auto launched = find_launched_rank([&](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
  if (launched.has_error()) {
    require(!launched.error().message().empty());
  } else if (launched.value().has_value()) {
    const LaunchedRank& one = *launched.value();
    require(one.rank >= 0 && one.nranks >= 0 && (one.nranks == 0 || one.rank < one.nranks));
  }
}

/// The server has said all that it will say.
void fuzz_pmi(std::string_view answers) {
  std::array<int, 2> ends{};
  require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  require(send(ends[1], answers.data(), answers.size(), MSG_NOSIGNAL) >= 0);
  require(shutdown(ends[1], SHUT_WR) == 0);
  const Deadline deadline = Deadline::after(std::chrono::seconds(5));
  (void)pass_on_by_pmi(std::to_string(ends[0]), static_cast<int>(answers.size() % 2), "0123",
                       deadline);
  close(ends[0]);
  close(ends[1]);
}

void fuzz(std::string_view text) {
  fuzz_variables(text);
  if (const auto host = first_of_node_list(std::string(text)); host.has_value()) {
    require(!host.value().empty());
  }
  std::array<std::byte, UniqueId::kBytes> bytes{};
  std::memcpy(bytes.data(), text.data(), std::min(text.size(), bytes.size()));
  if (const auto id = UniqueId::from_bytes(bytes); id.has_value()) {
    require(UniqueId::from_bytes(id.value().to_bytes()).has_value());
  }
  if (!text.empty()) {
    fuzz_pmi(text);
  }
}

}  // namespace
}  // namespace plexus

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plexus::fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
