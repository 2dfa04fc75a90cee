// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

struct Fact {
  std::string name;
  long long value;
};

std::vector<Fact> facts_of_plexus();
std::vector<Fact> facts_of_cuda();
