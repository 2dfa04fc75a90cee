// SPDX-License-Identifier: Apache-2.0
#include "core/control/process_table.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "core/base/bytes.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

constexpr uint8_t kHostBytesMax = 64;

Error damaged_table() { return fail(Code::kRemoteError, "a table of processes is damaged"); }

}  // namespace

std::vector<uint32_t> all_ranks(size_t nranks) {
  std::vector<uint32_t> all(nranks);
  std::iota(all.begin(), all.end(), 0U);
  return all;
}

// ---- ProcessTable ----

Result<ProcessTable> ProcessTable::make(std::vector<ProcessEntry> entries) {
  std::map<uint64_t, uint32_t> lowest;  // host key -> its lowest rank
  for (ProcessEntry& entry : entries) {
    if (entry.ranks.empty()) {
      return damaged_table();
    }
    std::sort(entry.ranks.begin(), entry.ranks.end());
    const auto at = lowest.try_emplace(entry.host_key, entry.ranks.front()).first;
    at->second = std::min(at->second, entry.ranks.front());
  }
  std::sort(entries.begin(), entries.end(), [&](const ProcessEntry& a, const ProcessEntry& b) {
    return std::pair(lowest[a.host_key], a.ranks.front()) <
           std::pair(lowest[b.host_key], b.ranks.front());
  });
  ProcessTable table;
  // Every process keeps it, so no room is left over.
  table.rows_.reserve(entries.size());
  table.ranks_.reserve(std::accumulate(
      entries.begin(), entries.end(), size_t{0},
      [](size_t sum, const ProcessEntry& entry) { return sum + entry.ranks.size(); }));
  const uint64_t* key = nullptr;
  for (const ProcessEntry& entry : entries) {
    if (key == nullptr || *key != entry.host_key) {
      table.hosts_.push_back(entry.host.substr(0, kHostBytesMax));
    }
    key = &entry.host_key;
    table.rows_.push_back({.id = entry.process,
                           .pid = entry.pid,
                           .host = static_cast<uint32_t>(table.hosts_.size() - 1),
                           .first_rank = static_cast<uint32_t>(table.ranks_.size()),
                           .address = entry.address});
    table.ranks_.insert(table.ranks_.end(), entry.ranks.begin(), entry.ranks.end());
  }
  constexpr uint32_t kNone = ~0U;
  table.process_of_.assign(table.ranks_.size(), kNone);
  for (uint32_t process = 0; process < table.nprocesses(); ++process) {
    for (const uint32_t rank : table.ranks_of(process)) {
      if (rank >= table.nranks() || table.process_of_[rank] != kNone) {
        return damaged_table();
      }
      table.process_of_[rank] = process;
    }
  }
  return table;
}

std::span<const uint32_t> ProcessTable::ranks_of(uint32_t process) const {
  PLEXUS_DCHECK(process < nprocesses(), process, nprocesses());
  const size_t begin = rows_[process].first_rank;
  const size_t end = process + 1 < rows_.size() ? rows_[process + 1].first_rank : ranks_.size();
  return std::span(ranks_).subspan(begin, end - begin);
}

std::string ProcessTable::encode() const {
  ByteWriter writer;
  writer.put(static_cast<uint32_t>(hosts_.size()));
  for (const std::string& host : hosts_) {
    writer.put_text<uint8_t>(host);
  }
  writer.put(static_cast<uint32_t>(rows_.size()));
  for (uint32_t process = 0; process < rows_.size(); ++process) {
    const Row& row = rows_[process];
    const auto ranks = ranks_of(process);
    const auto end = std::find_if(row.address.rbegin(), row.address.rend(),
                                  [](uint8_t byte) { return byte != 0; });
    writer.put(row.id);
    writer.put(row.pid);
    writer.put(row.host);
    writer.put_text<uint8_t>({reinterpret_cast<const char*>(row.address.data()),
                              static_cast<size_t>(row.address.rend() - end)});
    writer.put(static_cast<uint32_t>(ranks.size()));
    writer.put_bytes({reinterpret_cast<const char*>(ranks.data()), ranks.size_bytes()});
  }
  return writer.take();
}

Result<ProcessTable> ProcessTable::decode(std::string_view bytes) {
  ByteReader reader(bytes);
  const auto nhosts = reader.take_between<uint32_t>(0, kFamilyRanksMax);
  std::vector<std::string> hosts;
  for (uint32_t host = 0; host < nhosts && !reader.broken(); ++host) {
    hosts.emplace_back(reader.take_text<uint8_t>(kHostBytesMax));
  }
  const auto nprocesses = reader.take_between<uint32_t>(1, kFamilyRanksMax);
  std::vector<ProcessEntry> entries;
  for (uint32_t process = 0; process < nprocesses && !reader.broken(); ++process) {
    ProcessEntry entry;
    entry.process = reader.take<uint64_t>();
    entry.pid = reader.take<int32_t>();
    entry.host_key = reader.take<uint32_t>();
    const std::string_view address = reader.take_text<uint8_t>(SocketAddress::kPackedBytes);
    std::copy(address.begin(), address.end(), entry.address.begin());
    const auto count = reader.take_between<uint32_t>(1, kFamilyRanksMax);
    const std::string_view ranks = reader.take_bytes(count * sizeof(uint32_t));
    if (reader.broken() || entry.host_key >= hosts.size()) {
      return damaged_table();
    }
    entry.host = hosts[entry.host_key];
    entry.ranks.resize(count);
    std::memcpy(entry.ranks.data(), ranks.data(), ranks.size());
    entries.push_back(std::move(entry));
  }
  if (!reader.whole()) {
    return damaged_table();
  }
  return make(std::move(entries));
}

std::optional<uint32_t> ProcessTable::find(uint64_t process_id) const {
  const auto at = std::find_if(rows_.begin(), rows_.end(),
                               [&](const Row& row) { return row.id == process_id; });
  return at == rows_.end() ? std::nullopt
                           : std::optional(static_cast<uint32_t>(at - rows_.begin()));
}

Result<SocketAddress> ProcessTable::address_of(uint32_t process) const {
  return SocketAddress::unpack(rows_[process].address.data());
}

std::string ProcessTable::name_of(uint32_t rank) const {
  if (rank >= nranks()) {
    return fmt::format("rank {}", rank);
  }
  return fmt::format("rank {} ({})", rank, process_name_of(rank));
}

std::string ProcessTable::process_name_of(uint32_t rank) const {
  const Row& row = rows_[process_of(rank)];
  return fmt::format("{}:{}", hosts_[row.host], row.pid);
}

// ---- ControlTree ----

ControlTree::ControlTree(const ProcessTable& table, std::vector<uint32_t> processes)
    : processes_(std::move(processes)) {
  PLEXUS_DCHECK(!processes_.empty() && processes_.back() < table.nprocesses(), processes_.size());
  PLEXUS_DCHECK(std::adjacent_find(processes_.begin(), processes_.end(), std::greater_equal<>()) ==
                    processes_.end(),
                processes_.size());
  for (uint32_t position = 0; position < size(); ++position) {
    if (position == 0 ||
        table.host_of(processes_[position]) != table.host_of(processes_[position - 1])) {
      leaders_.push_back(position);
    }
  }
}

std::optional<uint32_t> ControlTree::position_of(uint32_t process) const {
  const auto at = std::lower_bound(processes_.begin(), processes_.end(), process);
  return at == processes_.end() || *at != process
             ? std::nullopt
             : std::optional(static_cast<uint32_t>(at - processes_.begin()));
}

uint32_t ControlTree::host_of(uint32_t position) const {
  PLEXUS_DCHECK(position < size(), position, size());
  const auto next = std::upper_bound(leaders_.begin(), leaders_.end(), position);
  return static_cast<uint32_t>(next - leaders_.begin()) - 1;
}

std::optional<uint32_t> ControlTree::parent(uint32_t position) const {
  const uint32_t host = host_of(position);
  const uint32_t leader = leaders_[host];
  if (position > leader) {
    return leader + (position - leader - 1) / kFanOut;
  }
  return host == 0 ? std::nullopt : std::optional(leaders_[(host - 1) / kFanOut]);
}

std::vector<uint32_t> ControlTree::children(uint32_t position) const {
  std::vector<uint32_t> found;
  const uint32_t host = host_of(position);
  const auto nhosts = static_cast<uint32_t>(leaders_.size());
  const uint32_t leader = leaders_[host];
  if (position == leader) {
    for (uint32_t child = kFanOut * host + 1; child <= kFanOut * (host + 1) && child < nhosts;
         ++child) {
      found.push_back(leaders_[child]);
    }
  }
  const uint32_t end = host + 1 < nhosts ? leaders_[host + 1] : size();
  const uint32_t first = leader + kFanOut * (position - leader) + 1;
  for (uint32_t child = first; child < first + kFanOut && child < end; ++child) {
    found.push_back(child);
  }
  return found;
}

std::vector<uint32_t> ControlTree::subtree(uint32_t position) const {
  std::vector<uint32_t> found = {position};
  for (size_t at = 0; at < found.size(); ++at) {
    const auto below = children(found[at]);
    found.insert(found.end(), below.begin(), below.end());
  }
  PLEXUS_DCHECK(found.size() <= size(), found.size(), size());
  return found;
}

}  // namespace plexus
