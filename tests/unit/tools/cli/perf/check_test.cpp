// SPDX-License-Identifier: Apache-2.0
// Method: perform the collective by hand (write each part of the expected result to its place),
// then damage one byte and check that it is counted.
#include "tools/cli/perf/check.hpp"

#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::perf {
namespace {

constexpr size_t kCapacity = 8192;

class Operation {
 public:
  Operation(Collective collective, int rank, bool in_place)
      : first_(kCapacity + 2 * kGuardBytes), second_(first_.size()) {
    input_.shape = {.collective = collective,
                    .type = Type::kHalf,
                    .nranks = 3,
                    .rank = rank,
                    .root = info_of(collective).rooted ? 1 : -1,
                    .count = 40,
                    .in_place = in_place,
                    .traffic = &traffic_};
    input_.op = Op::kSum;
    input_.seed = 7;
    input_.buffers =
        bind_buffers(input_.shape, first_.data() + kGuardBytes, second_.data() + kGuardBytes);
    prepare_operation(input_);
  }

  void play() {
    const size_t element_bytes = info_of(input_.shape.type).size_bytes;
    for (const Part& part : compute_expected(input_.shape)) {
      const std::span out(input_.buffers.recv + part.offset * element_bytes,
                          part.count * element_bytes);
      if (part.kind == Part::Kind::kStream) {
        fill_stream(input_.shape.type, input_.seed, part.source, part.first_index, out);
      } else if (part.kind == Part::Kind::kResult) {
        fill_result({input_.shape.type, input_.op, input_.shape.nranks, input_.seed},
                    part.first_index, out);
      }
    }
  }

  [[nodiscard]] const OpBuffers& buffers() const { return input_.buffers; }
  [[nodiscard]] const Shape& shape() const { return input_.shape; }
  [[nodiscard]] CheckResult check() const { return check_operation(input_); }

 private:
  std::vector<std::byte> first_, second_;
  Traffic traffic_ = Traffic(0.5);
  CheckInput input_{};
};

void flip(std::byte* place) { *place ^= std::byte{1}; }

class CheckOperation : public ::testing::TestWithParam<std::tuple<CollectiveInfo, int, bool>> {
 protected:
  void SetUp() override {
    if (std::get<2>(GetParam()) && !std::get<0>(GetParam()).in_place) {
      GTEST_SKIP() << "has no in-place form";
    }
  }
  [[nodiscard]] static Operation make() {
    return {std::get<0>(GetParam()).collective, std::get<1>(GetParam()), std::get<2>(GetParam())};
  }
};

TEST_P(CheckOperation, AcceptsTheRightResult) {
  Operation operation = make();
  operation.play();
  const CheckResult result = operation.check();
  EXPECT_EQ(result.wrong, 0U) << result.first;
}

TEST_P(CheckOperation, SeesOneDamagedByteOfTheReceiveBuffer) {
  for (const bool last : {false, true}) {
    Operation operation = make();
    operation.play();
    flip(operation.buffers().recv + (last ? operation.buffers().recv_bytes - 1 : 0));
    EXPECT_EQ(operation.check().wrong, 1U);
  }
}

TEST_P(CheckOperation, SeesDamagedGuards) {
  for (const bool after : {false, true}) {
    Operation operation = make();
    operation.play();
    const OpBuffers& b = operation.buffers();
    const bool recv_larger = b.recv_bytes >= b.send_bytes;
    std::byte* outer = recv_larger ? b.recv : b.send;
    flip(after ? outer + (recv_larger ? b.recv_bytes : b.send_bytes) : outer - 1);
    const CheckResult result = operation.check();
    EXPECT_EQ(result.wrong, 1U);
    EXPECT_THAT(result.first, ::testing::HasSubstr("the buffer: 1 bytes changed"));
  }
}

TEST_P(CheckOperation, SeesChangedInputOutOfPlace) {
  Operation operation = make();
  if (operation.shape().in_place) {
    GTEST_SKIP() << "the input is overwritten";
  }
  operation.play();
  flip(operation.buffers().send + operation.buffers().send_bytes / 2);
  EXPECT_EQ(operation.check().wrong, 1U);
}

TEST_P(CheckOperation, SeesThatNothingWasDone) {
  const Operation operation = make();
  const bool receives = compute_expected(operation.shape()).front().kind != Part::Kind::kUntouched;
  const bool moved_onto_itself = operation.shape().in_place &&
                                 operation.shape().rank == operation.shape().root &&
                                 !info_of(operation.shape().collective).reduces &&
                                 base_of(operation.shape().collective) != Collective::kGather;
  EXPECT_EQ(operation.check().wrong > 0, receives && !moved_onto_itself);
}

std::string name_of_case(
    const ::testing::TestParamInfo<std::tuple<CollectiveInfo, int, bool>>& test_case) {
  return std::string(std::get<0>(test_case.param).name) + "_rank" +
         std::to_string(std::get<1>(test_case.param)) +
         (std::get<2>(test_case.param) ? "_in_place" : "_out_of_place");
}
INSTANTIATE_TEST_SUITE_P(AllCollectives,
                         CheckOperation,
                         ::testing::Combine(::testing::ValuesIn(collectives().begin(),
                                                                collectives().end()),
                                            ::testing::Values(0, 1, 2),
                                            ::testing::Bool()),
                         name_of_case);

TEST(CheckResult, SaysWhichElementIsWrong) {
  Operation operation(Collective::kAllReduce, 0, false);
  operation.play();
  flip(operation.buffers().recv + size_t{2} * 17);
  EXPECT_THAT(operation.check().first, ::testing::StartsWith("result: element 17 is 0x"));
}

}  // namespace

void PrintTo(const CollectiveInfo& collective, std::ostream* out) { *out << collective.name; }

}  // namespace plexus::perf
