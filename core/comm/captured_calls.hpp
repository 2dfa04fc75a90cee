// SPDX-License-Identifier: Apache-2.0
// Calls that a graph of virtual devices takes down instead of their being made
// (core/device/virtual_devices.h), to be made by each launch of the graph.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/base/result.hpp"
#include "core/schedule/task.hpp"

namespace plexus {

/// Hands those of `tasks` that are on captured streams to their graphs, which make them by `run`,
/// as a group for each stream. Returns the others; nullopt: all are others.
std::optional<std::vector<Task>> take_down(std::span<const Task> tasks,
                                           Result<void> (*run)(std::span<const Task>));

}  // namespace plexus
