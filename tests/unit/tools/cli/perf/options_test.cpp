// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/options.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <boost/algorithm/string.hpp>
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
  // In words, as main() gets them: given a line, CLI11 2.4 takes brackets for quotes.
  std::vector<std::string> words;
  boost::algorithm::split(words, line, boost::algorithm::is_space(),
                          boost::algorithm::token_compress_on);
  std::reverse(words.begin(), words.end());  // the order that CLI11 wants
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    return fail(Code::kInvalidArgument, "{}", error.what());
  }
  PLEXUS_TRY(complete_options(&options));
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
  EXPECT_STREQ(start_name(options), "procs");
  EXPECT_EQ(options.outputs.columns, Columns::kNcclTests);
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
    EXPECT_EQ(options->blocking, Blocking::kWaitAndBarrier);
    EXPECT_EQ(options->timeout_s, 9);
  }
}

TEST(PerfOptions, TakesOurOwnFlags) {
  const PerfOptions options =
      parse(
          "all_reduce --ranks 3 --mode single --algo ring --proto Simple --channels 2 "
          "--buffers registered --stream async --json - --tsv f --columns plexus")
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
  EXPECT_EQ(options.outputs.columns, Columns::kPlexus);
}

/// Both names of each option of nccl-tests, with a value that is not the default.
TEST(PerfOptions, TakesEveryOptionOfNcclTests) {
  const PerfOptions a =
      parse(
          "all_reduce_perf -t 2 -g 3 -m 5 -N 2 -a 1 -y 0 -R 2 -u 7 -C 1 -S 1 -I 1 -K 4 -J f.json "
          "-z 3 -p 1 -G 6 -D 1 -V 8 -x 2 -M 1")
          .value();
  const PerfOptions b =
      parse(
          "all_reduce_perf_mpi --nthreads 2 --ngpus 3 --agg_iters 5 --run_cycles 2 --average 1 "
          "--stream_null 0 --local_register 2 --unalign 7 --report_cputime 1 --report_timestamps 1 "
          "--per_iter_timing 1 --per_iter_skip 4 --output_file f.json --blocking 3 "
          "--parallel_init 1 --cudagraph 6 --device_implementation 1 --device_cta_count 8 "
          "--cta_policy 2 --memory 1")
          .value();
  for (const PerfOptions* options : {&a, &b}) {
    EXPECT_EQ(options->collective, Collective::kAllReduce);
    EXPECT_EQ(options->nranks, 6);
    EXPECT_EQ(compute_workers(*options).threads, 2);
    EXPECT_EQ(compute_workers(*options).ranks_per_thread, 3);
    EXPECT_EQ(options->aggregate, 5);
    EXPECT_EQ(options->cycles, 2);
    EXPECT_EQ(options->average, Average::kMean);
    EXPECT_EQ(options->stream, Stream::kAsync);
    EXPECT_EQ(options->buffers, Buffers::kWindow);
    EXPECT_EQ(options->unalign, 7);
    EXPECT_TRUE(options->outputs.cpu_time && options->outputs.timestamps &&
                options->outputs.per_iteration);
    EXPECT_EQ(options->skipped, 4);
    EXPECT_EQ(options->outputs.nccl_tests_json, "f.json");
    EXPECT_EQ(options->blocking, Blocking::kIteration);
    EXPECT_THAT(
        options->notes,
        ElementsAre(HasSubstr("--parallel_init 1"), HasSubstr("--cudagraph 6"),
                    HasSubstr("--device_implementation 1"), HasSubstr("--device_cta_count 8"),
                    HasSubstr("--cta_policy 2"), HasSubstr("--memory 1")));
  }
}

TEST(PerfOptions, SaysNothingOfWhatIsTurnedOff) {
  const PerfOptions options = parse("all_reduce -p 0 -G 0 -D 0 -M 0 -f 1 -i 0 -b 8 -e 8").value();
  EXPECT_THAT(options.notes, ElementsAre());
  EXPECT_THAT(compute_sizes(options.sizes), ElementsAre(8));
}

TEST(PerfOptions, AnOutputFileThatIsNotJsonIsNamed) {
  const PerfOptions options = parse("all_reduce -J x.txt").value();
  EXPECT_EQ(options.outputs.nccl_tests_json, "");
  EXPECT_THAT(options.notes, ElementsAre(HasSubstr("x.txt is ignored")));
}

TEST(ComputeWorkers, ProcessesThreadsAndRanksOfAThread) {
  const auto workers = [](const std::string& line) {
    const Workers found = compute_workers(parse(line).value());
    return std::vector{found.processes, found.threads, found.ranks_per_thread};
  };
  const auto started = [](const std::string& line) {
    return std::string(start_name(parse(line).value()));
  };
  EXPECT_THAT(workers("all_reduce"), ElementsAre(4, 1, 1));
  EXPECT_THAT(workers("all_reduce -g 1"), ElementsAre(1, 1, 1));
  EXPECT_THAT(workers("all_reduce --ranks 2 -g 1 -t 1"), ElementsAre(2, 1, 1));
  EXPECT_THAT(workers("all_reduce -g 3"), ElementsAre(1, 1, 3));
  EXPECT_THAT(workers("all_reduce -t 3"), ElementsAre(1, 3, 1));
  EXPECT_THAT(workers("all_reduce --ranks 12 -t 2 -g 3"), ElementsAre(2, 2, 3));
  EXPECT_THAT(workers("all_reduce --ranks 5 --mode threads"), ElementsAre(1, 5, 1));
  EXPECT_THAT(workers("all_reduce --ranks 5 --mode single"), ElementsAre(1, 1, 5));
  EXPECT_EQ(started("all_reduce -g 3"), "single");
  EXPECT_EQ(started("all_reduce -t 3"), "threads");
  EXPECT_EQ(started("all_reduce -t 3 -g 2"), "mixed");
  EXPECT_EQ(started("all_reduce --ranks 4 -g 2"), "mixed");
  EXPECT_EQ(started("all_reduce --ranks 1 --mode threads"), "threads");
  EXPECT_TRUE(forks(parse("all_reduce --ranks 4 -g 2").value()));
  EXPECT_FALSE(forks(parse("all_reduce -t 2").value()));
  EXPECT_THAT(refusal("all_reduce --ranks 5 -g 2"), HasSubstr("multiple of the 2 ranks"));
  EXPECT_THAT(refusal("all_reduce --mode single -g 2"), HasSubstr("--mode single"));
}

const char* no_variable(const char* /*name*/) { return nullptr; }
const char* slow_variable(const char* name) {
  return std::string_view(name) == "NCCL_TESTS_MIN_BW" ? "12.5" : nullptr;
}
const char* split_text = nullptr;
const char* split_variable(const char* name) {
  return std::string_view(name) == "NCCL_TESTS_SPLIT" ? split_text : nullptr;
}
const char* mask_variable(const char* name) {
  return std::string_view(name) == "NCCL_TESTS_SPLIT_MASK" ? "0x4" : split_variable(name);
}
/// The colors of processes 0 to 5, or the refusal.
std::string colors(const char* text, const char* (*read)(const char* name) = split_variable) {
  split_text = text;
  PerfOptions options = parse("all_reduce").value();
  if (const auto taken = take_nccl_tests_variables(&options, read); !taken) {
    return taken.error().message();
  }
  std::string list;
  for (int process = 0; process < 6; ++process) {
    list += fmt::format("{} ", options.split->color_of(process));
  }
  return list;
}
const char* spread_variable(const char* name) {
  return std::string_view(name) == "NCCL_TESTS_ALLTOALLV_SPREAD" ? "1.5" : nullptr;
}

TEST(NcclTestsVariables, AreTakenOrRefusedByName) {
  PerfOptions options = parse("alltoallv").value();
  ASSERT_TRUE(take_nccl_tests_variables(&options, no_variable));
  EXPECT_FALSE(options.busbw_wanted);
  ASSERT_TRUE(take_nccl_tests_variables(&options, slow_variable));
  EXPECT_EQ(options.busbw_wanted, 12.5);
  EXPECT_THAT(take_nccl_tests_variables(&options, spread_variable).error().message(),
              HasSubstr("NCCL_TESTS_ALLTOALLV_SPREAD: expects a number from 0 to 1"));
}

TEST(NcclTestsVariables, SplitsTheProcessesByColor) {
  EXPECT_EQ(colors("MOD 2"), "0 1 0 1 0 1 ");
  EXPECT_EQ(colors("%0x2"), "0 1 0 1 0 1 ");
  EXPECT_EQ(colors("and 0b1"), "0 1 0 1 0 1 ");
  EXPECT_EQ(colors("DIV  4"), "0 0 0 0 1 1 ");
  EXPECT_EQ(colors("|3"), "3 3 3 3 7 7 ");
  EXPECT_EQ(colors("MOD 2", mask_variable), "0 0 0 0 4 4 ") << "the mask has precedence";
  for (const char* const wrong :
       {"", "MOD", "MOD 0", "/0", "XOR 2", "AND 0x", "AND 1 2", "OR -1"}) {
    EXPECT_THAT(colors(wrong), HasSubstr("NCCL_TESTS_SPLIT: expects AND, OR, MOD or DIV")) << wrong;
  }
}

TEST(PerfOptions, HypercubeNeedsAPowerOfTwo) {
  EXPECT_EQ(refusal("hypercube --ranks 8"), "taken");
  EXPECT_THAT(refusal("hypercube --ranks 6"), HasSubstr("1, 2, 4, 8, ... ranks, not 6"));
  EXPECT_THAT(refusal("hypercube --ranks 8 --algo ring"), HasSubstr("leave --algo out"));
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
  EXPECT_THAT(refusal("all_reduce -f -1"), HasSubstr("--stepfactor: expects a number from 0"));
  EXPECT_THAT(refusal("all_reduce -b 1 -e 2 -i 0"),
              HasSubstr("--stepbytes expects a size greater than 0"));
  EXPECT_THAT(refusal("all_reduce -o xor"),
              HasSubstr("--op: expects sum, prod, max, min, avg, mulsum or all"));
  EXPECT_THAT(refusal("all_reduce -d int128"), HasSubstr("--datatype: expects int8"));
  EXPECT_THAT(refusal("all_reduce -z 4"), HasSubstr("--blocking: expects 0, 1, 2, 3"));
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
  EXPECT_EQ(count_rows(parse("sendrecv -b 8 -e 64 -f 2").value()), 8U);
  EXPECT_EQ(count_rows(parse("sendrecv -b 8 -e 64 -f 2 --columns plexus").value()), 4U);
  EXPECT_EQ(count_rows(parse("sendrecv -b 8 -e 64 -f 2 --json -").value()), 4U);
  EXPECT_EQ(count_rows(parse("all_reduce -b 8 -e 64 -f 2 -N 3").value()), 24U);
}

}  // namespace
}  // namespace plexus::perf
