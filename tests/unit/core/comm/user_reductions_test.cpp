// SPDX-License-Identifier: Apache-2.0
#include "core/comm/user_reductions.hpp"

#include <set>

#include <gtest/gtest.h>

namespace plexus {
namespace {

constexpr int kFloat32 = 7;  // ncclFloat32
constexpr int kFloat64 = 8;

Task task_of(int op, int type = kFloat32) {
  Task task;
  task.shape.op = op;
  task.shape.type = type;
  return task;
}

TEST(UserReductions, ResolvesBuiltInOps) {
  const UserReductions reductions(1, 4);
  const ReduceKind kinds[] = {ReduceKind::kSum, ReduceKind::kProd, ReduceKind::kMax,
                              ReduceKind::kMin};
  for (int op = 0; op < 4; ++op) {
    Task task = task_of(op);
    ASSERT_TRUE(reductions.resolve(&task).has_value()) << op;
    EXPECT_EQ(task.op.kind, kinds[op]);
    EXPECT_FALSE(task.op.scales_input());
    EXPECT_EQ(task.shape.op, op);
  }
  Task average = task_of(4);
  ASSERT_TRUE(reductions.resolve(&average).has_value());
  EXPECT_TRUE(average.op.scales_input() || average.op.divides_output());
}

TEST(UserReductions, AnImmediateScalarIsReadAtOnce) {
  UserReductions reductions(1, 2);
  float scalar = 3;
  const int op = reductions.add(DataType::kFloat32, &scalar, false);
  scalar = 5;
  Task task = task_of(op);
  ASSERT_TRUE(reductions.resolve(&task).has_value());
  ReduceOp expected = ReduceOp::premul_sum(0);
  const float three = 3;
  expected.load_scalar(&three, DataType::kFloat32);
  EXPECT_EQ(task.op.scalar_bits, expected.scalar_bits);
  EXPECT_EQ(task.scalar, nullptr);
}

TEST(UserReductions, ADeviceScalarIsReadWhenTheCallRuns) {
  UserReductions reductions(1, 2);
  const float scalar = 3;
  const int op = reductions.add(DataType::kFloat32, &scalar, true);
  Task task = task_of(op);
  ASSERT_TRUE(reductions.resolve(&task).has_value());
  EXPECT_EQ(task.scalar, &scalar);
}

TEST(UserReductions, AllOfUsersHaveOneShape) {
  UserReductions reductions(1, 2);
  const float scalar = 3;
  Task first = task_of(reductions.add(DataType::kFloat32, &scalar, false));
  Task second = task_of(reductions.add(DataType::kFloat32, &scalar, true));
  ASSERT_NE(first.shape.op, second.shape.op);
  ASSERT_TRUE(reductions.resolve(&first).has_value());
  ASSERT_TRUE(reductions.resolve(&second).has_value());
  EXPECT_EQ(first.shape, second.shape);
  EXPECT_EQ(first.shape.op, kFirstUserOp);
}

TEST(UserReductions, ValuesOfTwoCommunicatorsDiffer) {
  UserReductions ours(1, 2);
  UserReductions theirs(2, 2);
  const float scalar = 3;
  std::set<int> ops;
  for (int i = 0; i < 100; ++i) {
    for (UserReductions* const reductions : {&ours, &theirs}) {
      const int op = reductions->add(DataType::kFloat32, &scalar, false);
      EXPECT_GE(op, kFirstUserOp);
      EXPECT_TRUE(ops.insert(op).second) << op;
    }
  }
  Task task = task_of(ours.add(DataType::kFloat32, &scalar, false));
  const auto refused = theirs.resolve(&task);
  ASSERT_TRUE(refused.has_error());
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
}

TEST(UserReductions, RefusesAnotherTypeAndWhatWasRemoved) {
  UserReductions reductions(1, 2);
  const float scalar = 3;
  const int op = reductions.add(DataType::kFloat32, &scalar, false);
  Task task = task_of(op, kFloat64);
  EXPECT_TRUE(reductions.resolve(&task).has_error());
  ASSERT_TRUE(reductions.remove(op).has_value());
  task = task_of(op);
  EXPECT_TRUE(reductions.resolve(&task).has_error());
  EXPECT_TRUE(reductions.remove(op).has_error());
  EXPECT_TRUE(reductions.remove(0).has_error()) << "built-in ones stay";
}

}  // namespace
}  // namespace plexus
