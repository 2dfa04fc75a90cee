// SPDX-License-Identifier: Apache-2.0
#include "kernels/program/expressions.hpp"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

namespace plexus {
namespace {

constexpr uint64_t kLeavesMax = uint64_t{1} << 30;

/// "rank 2", "ranks 0, 1, 2", "ranks 0, 1, ... and 9 more"
std::string list_ranks(const std::vector<uint32_t>& ranks) {
  constexpr size_t kShown = 8;
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < std::min(ranks.size(), kShown); ++i) {
    text += fmt::format("{}{}", i == 0 ? " " : ", ", ranks[i]);
  }
  return ranks.size() > kShown ? text + fmt::format(" and {} more", ranks.size() - kShown) : text;
}

}  // namespace

Expressions::Expressions(int nranks, int blocks, bool commutes)
    : nranks_(static_cast<uint32_t>(nranks)),
      blocks_(static_cast<uint32_t>(blocks)),
      commutes_(commutes),
      contributions_(nranks_ * blocks_) {}

uint32_t Expressions::contribution(int rank, int block) const {
  return static_cast<uint32_t>(rank) * blocks_ + static_cast<uint32_t>(block);
}

uint32_t Expressions::combine(uint32_t first, uint32_t second) {
  if (commutes_ && second < first) {
    std::swap(first, second);
  }
  return find_or_add(first, second, uint64_t{leaves_of(first)} + leaves_of(second));
}

uint32_t Expressions::complete(uint32_t value) {
  return find_or_add(value, kUndefined, leaves_of(value));
}

bool Expressions::is_complete(uint32_t value) const {
  return value != kUndefined && !is_contribution(value) &&
         nodes_[value - contributions_].second == kUndefined;
}

uint32_t Expressions::leaves_of(uint32_t value) const {
  return is_contribution(value) ? 1 : nodes_[value - contributions_].leaves;
}

uint32_t Expressions::find_or_add(uint32_t first, uint32_t second, uint64_t leaves) {
  constexpr int kHalf = 32;
  const uint64_t key = uint64_t{first} << kHalf | second;
  const auto next = contributions_ + static_cast<uint32_t>(nodes_.size());
  const auto [at, is_new] = known_.try_emplace(key, next);
  if (is_new) {
    nodes_.push_back(
        {first, second, static_cast<uint32_t>(std::min(leaves, kLeavesMax)), kNotLooked});
  }
  return at->second;
}

std::vector<uint32_t> Expressions::list_contributions(uint32_t value) const {
  std::vector<uint32_t> found;
  std::vector<uint32_t> open = {value};
  while (!open.empty()) {
    const uint32_t one = open.back();
    open.pop_back();
    if (is_contribution(one)) {
      found.push_back(one);
      continue;
    }
    const Node& node = nodes_[one - contributions_];
    open.push_back(node.first);
    if (node.second != kUndefined) {
      open.push_back(node.second);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

int Expressions::find_whole_block(uint32_t value) {
  if (value == kUndefined || leaves_of(value) != nranks_) {
    return -1;
  }
  if (is_contribution(value)) {
    return static_cast<int>(value % blocks_);
  }
  if (nodes_[value - contributions_].whole_block != kNotLooked) {
    return nodes_[value - contributions_].whole_block;
  }
  const std::vector<uint32_t> parts = list_contributions(value);
  const uint32_t block = parts.front() % blocks_;
  bool is_whole = true;
  for (uint32_t rank = 0; rank < nranks_; ++rank) {
    is_whole = is_whole && parts[rank] == rank * blocks_ + block;
  }
  nodes_[value - contributions_].whole_block = is_whole ? static_cast<int>(block) : -1;
  return nodes_[value - contributions_].whole_block;
}

std::string Expressions::describe(uint32_t value) {
  if (value == kUndefined) {
    return "nothing";
  }
  constexpr uint32_t kListed = 1 << 16;
  const bool too_many = leaves_of(value) > nranks_;
  const std::string counted =
      too_many ? fmt::format("{} contributions of {} ranks", leaves_of(value), nranks_) : "";
  if (too_many && leaves_of(value) > kListed) {
    return counted;
  }
  const std::vector<uint32_t> parts = list_contributions(value);
  if (parts.size() == 1) {
    return fmt::format("rank {}'s chunk {}", parts[0] / blocks_, parts[0] % blocks_);
  }
  const auto twice = std::adjacent_find(parts.begin(), parts.end());
  if (twice != parts.end()) {
    return fmt::format("{}{}rank {}'s chunk {} twice", counted, too_many ? ", " : "",
                       *twice / blocks_, *twice % blocks_);
  }
  if (too_many) {
    return counted;
  }
  const uint32_t block = parts.front() % blocks_;
  for (const uint32_t part : parts) {
    if (part % blocks_ != block) {
      return fmt::format("contributions to chunk {} and to chunk {}", block, part % blocks_);
    }
  }
  std::vector<uint32_t> has;
  std::vector<uint32_t> lacks;
  for (uint32_t rank = 0; rank < nranks_; ++rank) {
    const bool is_there = std::binary_search(parts.begin(), parts.end(), rank * blocks_ + block);
    (is_there ? has : lacks).push_back(rank);
  }
  if (!lacks.empty()) {
    return fmt::format("{} of {} contributions to chunk {}: has those of {}, lacks those of {}",
                       has.size(), nranks_, block, list_ranks(has), list_ranks(lacks));
  }
  return fmt::format("all contributions to chunk {}{}", block,
                     is_complete(value) ? "" : ", not marked complete");
}

}  // namespace plexus
