// SPDX-License-Identifier: Apache-2.0
#include <iterator>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/cli/ras_client.hpp"

namespace plexus {
namespace {

using nlohmann::json;

/// Metrics in the order in which they were first mentioned, each with its samples in one place, as
/// the format wants it.
class Metrics {
 public:
  void add(const std::string& name,
           const char* type,
           const char* help,
           const std::vector<std::pair<const char*, std::string>>& labels,
           double value) {
    const auto [at, is_new] = places_.emplace(name, texts_.size());
    if (is_new) {
      texts_.push_back(fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type));
    }
    std::string joined;
    for (const auto& [label, text] : labels) {
      joined += fmt::format("{}{}=\"{}\"", joined.empty() ? "" : ",", label, escape(text));
    }
    texts_[at->second] += fmt::format("{}{{{}}} {}\n", name, joined, value);
  }
  [[nodiscard]] std::string text() const {
    std::string all;
    for (const std::string& each : texts_) {
      all += each;
    }
    return all;
  }

 private:
  static std::string escape(const std::string& text) {
    std::string escaped;
    for (const char c : text) {
      escaped += c == '\n'               ? "\\n"
                 : c == '"' || c == '\\' ? std::string("\\") + c
                                         : std::string(1, c);
    }
    return escaped;
  }
  std::map<std::string, size_t> places_;
  std::vector<std::string> texts_;
};

std::string number(const json& value) { return std::to_string(value.get<int64_t>()); }

/// What answers of jobs of NCCL do not have.
void add_bytes(Metrics& metrics,
               const std::string& hash,
               const std::string& rank,
               const json& answer,
               double nranks) {
  const double others = (nranks - 1) / nranks;
  const json by_kind = answer.value("collective_bytes", json::object());
  for (const auto& [kind, bytes] : by_kind.items()) {
    const std::vector<std::pair<const char*, std::string>> labels = {
        {"comm", hash}, {"rank", rank}, {"collective", kind}};
    const double factor = kind == "AllReduce"                       ? 2 * others
                          : kind == "Broadcast" || kind == "Reduce" ? 1
                                                                    : others;
    metrics.add("plexus_collective_bytes_total", "counter",
                "bytes of the rank's collectives, as nccl-tests counts a call's size", labels,
                bytes.get<double>());
    metrics.add("plexus_bus_bytes_total", "counter",
                "the same by nccl-tests' factors: a rate of it is the bus bandwidth", labels,
                factor * bytes.get<double>());
  }
  for (const char* const direction : {"sent", "received"}) {
    if (const auto at = answer.find(std::string(direction) + "_bytes"); at != answer.end()) {
      metrics.add("plexus_message_bytes_total", "counter", "bytes of sends and receives",
                  {{"comm", hash}, {"rank", rank}, {"direction", direction}}, at->get<double>());
    }
  }
}

void add_links(Metrics& metrics,
               const std::string& hash,
               const std::string& rank,
               const json& answer) {
  if (!answer.contains("failovers")) {
    return;  // a job of NCCL
  }
  metrics.add("plexus_failovers_total", "counter",
              "connections to other datacenters that went on after their link was lost",
              {{"comm", hash}, {"rank", rank}}, answer.at("failovers").get<double>());
  metrics.add("plexus_resent_messages_total", "counter",
              "messages under way at such a loss, which were sent again",
              {{"comm", hash}, {"rank", rank}}, answer.at("resent_messages").get<double>());
}

void add_comm(Metrics& metrics, const json& comm) {
  const std::string hash = comm.at("hash");
  for (const char* const list : {"ranks", "missing_ranks"}) {
    for (const json& rank : comm.at(list)) {
      metrics.add("plexus_rank_up", "gauge", "1: the rank's process answers",
                  {{"comm", hash},
                   {"rank", number(rank.at("rank"))},
                   {"host", rank.at("host")},
                   {"pid", number(rank.at("pid"))}},
                  list == std::string("ranks") ? 1 : 0);
    }
  }
  for (const json& rank : comm.at("ranks")) {
    const std::string index = number(rank.at("rank"));
    for (const auto& [kind, count] : rank.at("collective_counts").items()) {
      metrics.add("plexus_collectives_total", "counter", "collectives that the rank has called",
                  {{"comm", hash}, {"rank", index}, {"collective", kind}}, count.get<double>());
    }
    add_bytes(metrics, hash, index, rank, comm.at("size").get<double>());
    add_links(metrics, hash, index, rank);
    metrics.add("plexus_rank_error", "gauge", "ncclResult_t of the rank's communicator; 0: none",
                {{"comm", hash}, {"rank", index}},
                rank.at("status").at("async_error").get<double>());
    metrics.add("plexus_rank_wait_seconds", "gauge", "how long the rank's call has not moved",
                {{"comm", hash}, {"rank", index}},
                rank.value("activity", "") == "waiting" ? rank.value("activity_sec", 0.0) : 0.0);
  }
}

}  // namespace

Result<std::string> make_ras_metrics(const std::string& report) {
  const json parsed = json::parse(report, nullptr, false);
  try {
    Metrics metrics;
    for (const json& comm : parsed.at("communicators")) {
      add_comm(metrics, comm);
    }
    for (const json& verdict : parsed.value("verdicts", json::array())) {
      if (verdict.contains("late_us")) {
        constexpr double kUs = 1e-6;
        metrics.add("plexus_rank_late_seconds", "gauge",
                    "by how much the rank comes last to each call of its communicator",
                    {{"comm", verdict.at("communicator")}, {"rank", number(verdict.at("rank"))}},
                    kUs * verdict.at("late_us").get<double>());
        continue;
      }
      metrics.add("plexus_verdict_seconds", "gauge",
                  "for how long a rank has kept others waiting, by what is found to be the cause",
                  {{"comm", verdict.at("communicator")},
                   {"rank", number(verdict.at("rank"))},
                   {"cause", verdict.at("cause")}},
                  verdict.at("since_sec").get<double>());
    }
    return metrics.text();
  } catch (const json::exception& broken) {
    return fail(Code::kRemoteError, "the answer is no report of NCCL's RAS protocol: {}",
                broken.what());
  }
}

}  // namespace plexus
