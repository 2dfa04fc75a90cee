// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/options.hpp"

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::perf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The options, or the error text.
Result<PerfOptions> parse(const std::string& line) {
  CLI::App app;
  PerfOptions options;
  add_perf_flags(app, &options);
  try {
    app.parse(line);
  } catch (const CLI::ParseError& error) {
    return fail(Code::kInvalidArgument, "{}", error.what());
  }
  PLEXUS_TRY(check_options(options));
  return options;
}

std::string refusal(const std::string& line) {
  const Result<PerfOptions> options = parse(line);
  return options ? "taken" : options.error().message();
}

TEST(PerfOptions, HasTheDocumentedDefaults) {
  const PerfOptions options = parse("all_reduce").value();
  EXPECT_EQ(options.collective, Collective::kAllReduce);
  EXPECT_EQ(options.nranks, 4);
  EXPECT_EQ(options.mode, Mode::kProcs);
  EXPECT_EQ(options.warmup, 5);
  EXPECT_EQ(options.check, 1);
  EXPECT_FALSE(options.started_here);
  EXPECT_FALSE(options.joined);
  EXPECT_THAT(compute_sizes(options.sizes), ElementsAre(size_t{32} << 20U));
  EXPECT_EQ(compute_variants(options).size(), 1U);
}

TEST(PerfOptions, TakesShortAndLongNames) {
  const PerfOptions a =
      parse("broadcast -b 8 -e 64M -f 4 -n 7 -w 3 -c 2 -o max -d half -r 2 -z 1 -T 9").value();
  const PerfOptions b = parse(
                            "broadcast --minbytes 8 --maxbytes 64M --stepfactor 4 --iters 7 "
                            "--warmup_iters 3 --check 2 "
                            "--op max --datatype half --root 2 --blocking 1 --timeout 9")
                            .value();
  for (const PerfOptions* options : {&a, &b}) {
    EXPECT_EQ(*options->sizes.min_bytes, 8U);
    EXPECT_EQ(*options->sizes.max_bytes, size_t{64} << 20U);
    EXPECT_EQ(options->sizes.step_factor, 4);
    EXPECT_EQ(options->iterations.iterations, 7);
    EXPECT_EQ(options->warmup, 3);
    EXPECT_EQ(options->check, 2);
    EXPECT_THAT(options->ops, ElementsAre(Op::kMax));
    EXPECT_THAT(options->types, ElementsAre(Type::kHalf));
    EXPECT_EQ(options->root, 2);
    EXPECT_TRUE(options->blocking);
    EXPECT_EQ(options->timeout_s, 9);
  }
}

TEST(PerfOptions, TakesOurOwnFlags) {
  const PerfOptions options =
      parse(
          "sendrecv --ranks 3 --mode single --algo ring --proto Simple --channels 2 "
          "--buffers registered --stream async --json - --tsv f")
          .value();
  EXPECT_EQ(options.nranks, 3);
  EXPECT_EQ(options.mode, Mode::kSingle);
  EXPECT_TRUE(options.started_here);
  EXPECT_EQ(options.algorithm, "ring");
  EXPECT_EQ(options.protocol, "Simple");
  EXPECT_EQ(options.channels, 2);
  EXPECT_EQ(options.buffers, Buffers::kRegistered);
  EXPECT_EQ(options.stream, Stream::kAsync);
  EXPECT_EQ(options.outputs.json, "-");
  EXPECT_EQ(options.outputs.tsv, "f");
}

TEST(PerfOptions, JoinsAJobStartedElsewhere) {
  const PerfOptions options =
      parse("all_reduce --rank 2 --nranks 3 --rendezvous [::1]:5000").value();
  ASSERT_TRUE(options.joined);
  EXPECT_EQ(options.joined->rank, 2);
  EXPECT_EQ(options.joined->nranks, 3);
  EXPECT_EQ(options.joined->rendezvous, "[::1]:5000");
}

TEST(PerfOptions, RefusesInOneSentenceThatNamesTheFlag) {
  EXPECT_THAT(refusal("nothing"), HasSubstr("COLL: expects all_reduce, broadcast"));
  EXPECT_THAT(refusal("all_reduce -b x"), HasSubstr("--minbytes: expects a size"));
  EXPECT_THAT(refusal("all_reduce -f 1"),
              HasSubstr("--stepfactor: expects a number greater than 1"));
  EXPECT_THAT(refusal("all_reduce -i 0"), HasSubstr("--stepbytes: expects a size greater than 0"));
  EXPECT_THAT(refusal("all_reduce -o xor"),
              HasSubstr("--op: expects sum, prod, max, min, avg, mulsum or all"));
  EXPECT_THAT(refusal("all_reduce -d int128"), HasSubstr("--datatype: expects int8"));
  EXPECT_THAT(refusal("all_reduce -z 3"), HasSubstr("--blocking: expects 0, 1"));
  EXPECT_THAT(refusal("all_reduce --mode fork"),
              HasSubstr("--mode: expects procs, threads or single"));
  EXPECT_THAT(refusal("all_reduce --bind two"),
              HasSubstr("--bind: expects core, share, one, none, not 'two'"));
  EXPECT_THAT(refusal("all_reduce --ranks 0"), HasSubstr("--ranks: expects a whole number from 1"));
  EXPECT_THAT(refusal("all_reduce --rendezvous host"),
              HasSubstr("--rendezvous: expects HOST:PORT"));
  EXPECT_THAT(refusal("all_reduce --buffers gpu"),
              HasSubstr("--buffers: expects plain, registered"));
  EXPECT_THAT(refusal("all_reduce -b 4K -e 1K"),
              HasSubstr("--minbytes expects a size up to --maxbytes (1024)"));
  EXPECT_THAT(refusal("reduce -r 4"), HasSubstr("--root expects a rank from 0 to 3"));
  EXPECT_THAT(refusal("all_reduce --rank 3 --nranks 3 --rendezvous h:1"),
              HasSubstr("--rank expects a rank from 0 to 2"));
  EXPECT_THAT(refusal("all_reduce --rank 0"), HasSubstr("--rank needs --nranks"));
  EXPECT_THAT(refusal("all_reduce --rank 0 --nranks 2"), HasSubstr("--rank needs --rendezvous"));
  EXPECT_THAT(refusal("all_reduce --ranks 2 --rank 0 --nranks 2 --rendezvous h:1"),
              HasSubstr("use one set"));
}

TEST(ComputeSizes, MultipliesOrAdds) {
  EXPECT_THAT(compute_sizes({.min_bytes = 8, .max_bytes = 1024, .step_factor = 4}),
              ElementsAre(8, 32, 128, 512));
  EXPECT_THAT(compute_sizes({.min_bytes = 8, .max_bytes = 32, .step_bytes = 12}),
              ElementsAre(8, 20, 32));
  EXPECT_THAT(compute_sizes({.min_bytes = 0, .max_bytes = 4, .step_factor = 2}),
              ElementsAre(0, 1, 2, 4));
}

TEST(ComputeSizes, OneBoundAloneMovesTheDefaultOfTheOther) {
  EXPECT_THAT(compute_sizes({.min_bytes = {}, .max_bytes = 64}), ElementsAre(64));
  EXPECT_THAT(compute_sizes({.min_bytes = size_t{1} << 30U, .max_bytes = {}}),
              ElementsAre(size_t{1} << 30U));
}

TEST(ComputeVariants, AllMeansEveryCombinationThatTheCollectiveHas) {
  EXPECT_EQ(compute_variants(parse("all_reduce -o all -d all -r all").value()).size(), 6U * 12U);
  EXPECT_EQ(compute_variants(parse("reduce -o all -d all -r all").value()).size(), 6U * 12U * 4U);
  EXPECT_EQ(compute_variants(parse("broadcast -o all -d all -r all").value()).size(), 12U * 4U);
  EXPECT_EQ(compute_variants(parse("all_gather -o all").value()).size(), 1U);
}

TEST(CountRows, CountsBothPlacesWhereThereAreTwo) {
  EXPECT_EQ(count_rows(parse("all_reduce -b 8 -e 64 -f 2").value()), 8U);
  EXPECT_EQ(count_rows(parse("alltoall -b 8 -e 64 -f 2").value()), 4U);
}

}  // namespace
}  // namespace plexus::perf
