// SPDX-License-Identifier: Apache-2.0
// `plexus program export|import|verify|show|run`: algorithms as files (core/programs,
// docs/programs.md). Exit code 1 when a file is refused.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/base/file.hpp"
#include "core/programs/export.hpp"
#include "core/programs/msccl_xml.hpp"
#include "core/programs/program_file.hpp"
#include "core/programs/program_json.hpp"
#include "core/programs/program_set.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/flags.hpp"
#include "tools/cli/perf/options.hpp"
#include "tools/cli/program/draw.hpp"
#include "tools/cli/program/messages.hpp"

namespace plexus {
namespace {

struct ProgramOptions {
  std::string algorithm;
  ExportInput exported;
  std::vector<std::string> files;
  std::string output = "-";
  std::string svg;
  std::string json;
  enum class Format : uint8_t { kJson, kMsccl, kGoal, kChakra, kEt } format = Format::kJson;
  size_t bytes = size_t{1} << 20;  // of a call, for GOAL and Chakra
  int rank = 0;                    // whose, for Chakra
  perf::PerfOptions run;
};

int report(const Result<void>& done, int exit_code) {
  return done.has_value() ? kExitOk : report_error(done.error(), exit_code);
}

Result<ProgramFile> load(const std::string& path) {
  PLEXUS_TRY(text, read_file(path, kFileBytesMax));
  auto file = parse_program_file(text);
  if (file.has_error()) {
    return std::move(file).error().with_context(path);
  }
  return file;
}

/// In the format of the flags.
int write_program(const ProgramOptions& options, const ProgramFile& file) {
  if (options.format == ProgramOptions::Format::kJson) {
    return report(write_output(options.output, format_program_json(file)), kExitUsage);
  }
  if (options.rank >= file.nranks()) {
    return report_error(fail(Code::kInvalidArgument, "--rank: {} is not one of {} ranks",
                             options.rank, file.nranks()),
                        kExitUsage);
  }
  using Format = ProgramOptions::Format;
  const Workload messages = messages_of(file, options.bytes);
  const auto protobuf = [&](int rank) { return format_chakra_protobuf(messages, rank); };
  if (options.format == Format::kEt && options.output != "-") {
    return report(write_rank_files(options.output, file.nranks(), protobuf), kExitUsage);
  }
  const Result<std::string> text = options.format == Format::kMsccl  ? format_msccl(file)
                                   : options.format == Format::kGoal ? format_goal(messages)
                                   : options.format == Format::kEt
                                       ? protobuf(options.rank)
                                       : format_chakra(messages, options.rank);
  return text.has_error() ? report_error(text.error(), kExitWrong)
                          : report(write_output(options.output, text.value()), kExitUsage);
}

int run_export(const ProgramOptions& options) {
  const Algorithm* const algorithm = find_algorithm(options.algorithm);
  if (algorithm == nullptr) {
    std::vector<const char*> names;
    for (const Algorithm& row : algorithms()) {
      names.push_back(row.name);
    }
    return report_error(fail(Code::kInvalidArgument, "ALGO: expects one of {}, not '{}'",
                             fmt::join(names, ", "), options.algorithm),
                        kExitUsage);
  }
  const auto file = export_program(*algorithm, options.exported);
  return file.has_error() ? report_error(file.error(), kExitUsage)
                          : write_program(options, file.value());
}

int run_import(const ProgramOptions& options) {
  auto loaded = load(options.files.front());
  if (loaded.has_error()) {
    return report_error(loaded.error(), kExitWrong);
  }
  ProgramFile file = std::move(loaded).value();
  const ProgramProof proof = prove(file);
  if (!proof.proved) {
    return report_error(fail(Code::kInvalidArgument, "{}: {}", options.files.front(), proof.reason),
                        kExitWrong);
  }
  file.root = proof.root;
  file.out_of_place = proof.out_of_place.proved;
  file.in_place = proof.in_place.proved || !has_in_place(file.collective);
  return write_program(options, file);
}

std::string describe_forms(const ProgramFile& file, const ProgramProof& proof) {
  std::string text = is_rooted(file.collective) ? fmt::format(", root {}", proof.root) : "";
  text += proof.out_of_place.proved ? ", out of place" : "";
  text += proof.in_place.proved ? proof.out_of_place.proved ? " and in place" : ", in place" : "";
  return text;
}

nlohmann::ordered_json json_of(const std::string& path,
                               const ProgramFile& file,
                               const ProgramProof& proof) {
  nlohmann::ordered_json json;
  json["file"] = path;
  json["name"] = file.name;
  json["collective"] = name(file.collective);
  json["nranks"] = file.nranks();
  json["proved"] = proof.proved;
  if (!proof.proved) {
    json["reason"] = proof.reason;
    return json;
  }
  if (is_rooted(file.collective)) {
    json["root"] = proof.root;
  }
  json["out_of_place"] = proof.out_of_place.proved;
  json["in_place"] = proof.in_place.proved;
  json["steps"] = proof.any().steps;
  json["lanes"] = proof.any().lanes;
  json["rounds"] = proof.any().rounds;
  json["slots_needed"] = proof.any().slots_needed;
  json["same_order"] = proof.any().same_order;
  json["candidate"] = proof.unfit.empty();
  if (!proof.unfit.empty()) {
    json["no_candidate_because"] = proof.unfit;
  }
  return json;
}

/// Whether it is proved; prints a line, or adds to `json`.
bool verify_file(const std::string& path, bool prints, nlohmann::ordered_json& json) {
  auto loaded = load(path);
  if (loaded.has_error()) {
    if (prints) {
      fmt::print("refused  {}\n", loaded.error().message());
    }
    json.push_back({{"file", path}, {"proved", false}, {"reason", loaded.error().message()}});
    return false;
  }
  ProgramFile file = std::move(loaded).value();
  const ProgramProof proof = prove(file);
  json.push_back(json_of(path, file, proof));
  if (!prints) {
    return proof.proved;
  }
  if (!proof.proved) {
    fmt::print("refused  {}: {}\n", path, proof.reason);
    return false;
  }
  const VerifyResult& result = proof.any();
  fmt::print("proved   {}: {} of {} ranks{}; {} steps, {} lane{}, {} rounds, needs {} slot{}{}\n",
             path, name(file.collective), file.nranks(), describe_forms(file, proof), result.steps,
             result.lanes, result.lanes == 1 ? "" : "s", result.rounds, result.slots_needed,
             result.slots_needed == 1 ? "" : "s",
             proof.unfit.empty() ? "" : "; no candidate of a communicator: " + proof.unfit);
  return true;
}

int run_verify_files(const ProgramOptions& options) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  bool proved = true;
  for (const std::string& path : options.files) {
    proved = verify_file(path, options.json != "-", json) && proved;
  }
  if (!options.json.empty()) {
    using Handler = nlohmann::ordered_json::error_handler_t;
    const auto written =
        write_output(options.json, json.dump(1, ' ', false, Handler::replace) + "\n");
    if (written.has_error()) {
      return report_error(written.error(), kExitUsage);
    }
  }
  return proved ? kExitOk : kExitWrong;
}

int run_show(const ProgramOptions& options) {
  const auto file = load(options.files.front());
  if (file.has_error()) {
    return report_error(file.error(), kExitWrong);
  }
  if (options.svg.empty()) {
    fmt::print("{}", draw_text(file.value()));
    return kExitOk;
  }
  const auto svg = draw_svg(file.value());
  return svg.has_error() ? report_error(svg.error(), kExitWrong)
                         : report(write_output(options.svg, svg.value()), kExitUsage);
}

/// Sizes are rounded up to what the file's chunks divide, whatever the type.
void fit_sizes(const ProgramFile& file, perf::SizeRange& sizes) {
  constexpr size_t kDefaultBytes = size_t{1} << 20;
  constexpr size_t kAlignment = 16;  // of a rank's part, in `plexus perf`
  const size_t unit = static_cast<size_t>(file.programs.front().chunks) *
                      static_cast<size_t>(file.nranks()) * kAlignment;
  const auto fit = [unit](size_t bytes) {
    return std::max<size_t>(1, (bytes + unit - 1) / unit) * unit;
  };
  const size_t otherwise = std::clamp<uint64_t>(kDefaultBytes, file.bytes_min, file.bytes_max);
  const size_t first = sizes.min_bytes.value_or(sizes.max_bytes.value_or(otherwise));
  sizes.min_bytes = fit(first);
  sizes.max_bytes = std::max(fit(sizes.max_bytes.value_or(first)), *sizes.min_bytes);
  sizes.step_bytes = fit(sizes.step_bytes);
}

/// The name under which communicators of the library offer the file; an Error says why they do not.
Result<std::string> find_family(const std::string& path, const ProgramFile& file) {
  PLEXUS_TRY(texts, read_program_folders(path));
  const ProgramSet set(texts, file.nranks());
  return set.algorithms().size() == 1
             ? Result<std::string>(set.algorithms().front().family)
             : fail(Code::kInvalidArgument, "{}: it is no candidate of a communicator", path);
}

/// As `plexus perf`, with the file as the only algorithm.
Result<perf::PerfOptions> prepare_run(const ProgramOptions& options) {
  const std::string path = std::filesystem::absolute(options.files.front()).string();
  if (path.find(':') != std::string::npos) {
    return fail(Code::kInvalidArgument, "{}: rename it, a path with ':' cannot be run", path);
  }
  PLEXUS_TRY(file, load(options.files.front()));
  const ProgramProof proof = prove(file);
  if (!proof.proved || !proof.unfit.empty()) {
    return fail(Code::kInvalidArgument, "{}: {}", options.files.front(),
                proof.proved ? proof.unfit : proof.reason);
  }
  PLEXUS_TRY(family, find_family(path, file));
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread exists yet
  setenv("PLEXUS_PROGRAM_PATH", path.c_str(), 1);
  perf::PerfOptions run = options.run;
  run.collective = *perf::find_collective(name(file.collective));
  run.nranks = file.nranks();
  run.started_here = true;
  run.root = proof.root;
  run.algorithm = family;
  run.protocol = file.protocol.has_value() ? name(*file.protocol) : "";
  fit_sizes(file, run.sizes);
  return run;
}

int run_on_ranks(const ProgramOptions& options) {
  const auto run = prepare_run(options);
  return run.has_error() ? report_error(run.error(), kExitWrong) : run_perf(run.value());
}

CLI::App* add_file_command(
    CLI::App& app, const char* name, const char* help, ProgramOptions& options, int files_max) {
  CLI::App* const command = app.add_subcommand(name, help);
  command->add_option("FILE", options.files, "JSON, MSCCL XML or an MSCCL++ plan")
      ->required()
      ->expected(1, files_max)
      ->type_name("");
  return command;
}

}  // namespace

Command add_program_command(CLI::App& program) {
  CLI::App* const app =
      program.add_subcommand("program", "Algorithms as files: JSON, MSCCL XML, MSCCL++ plans");
  app->require_subcommand(1);
  const auto options = std::make_shared<ProgramOptions>();
  CLI::App* const exports = app->add_subcommand("export", "Write an algorithm's programs as JSON");
  exports->add_option("ALGO", options->algorithm, "as `plexus verify` names it")
      ->required()
      ->type_name("");
  ExportInput& exported = options->exported;
  add_int(*exports, "--ranks", &exported.nranks, {2, kFileRanksMax}, "number of ranks")->required();
  add_int(*exports, "--root", &exported.root, {0, kFileRanksMax - 1}, "root (default 0)");
  exports->add_flag("--joined", exported.joins,
                    "the form for short calls, whose messages carry several chunks");
  constexpr int kFilesMax = 100'000;
  CLI::App* const imports =
      add_file_command(*app, "import", "Prove a file and write it as JSON", *options, 1);
  CLI::App* const verifies = add_file_command(*app, "verify", "Prove files", *options, kFilesMax);
  CLI::App* const shows = add_file_command(*app, "show", "Draw a file's steps", *options, 1);
  CLI::App* const runs = add_file_command(
      *app, "run", "Prove a file, run it on real ranks, check and time it", *options, 1);
  perf::add_run_flags_of_file(*runs, &options->run);
  for (CLI::App* const each : {exports, imports}) {
    each->add_option("-o,--output", options->output, "file to write (default -: stdout)")
        ->type_name("FILE");
    using Format = ProgramOptions::Format;
    add_choice<Format>(*each, "--format",
                       {{"json", Format::kJson},
                        {"msccl", Format::kMsccl},
                        {"goal", Format::kGoal},
                        {"chakra", Format::kChakra},
                        {"et", Format::kEt}},
                       &options->format,
                       "JSON of ours (default), MSCCL's XML, or the messages of a call as GOAL, "
                       "Chakra's JSON (of one rank) or protobuf (a file NAME.R.et of each rank R "
                       "for -o NAME.et)");
    add_size(*each, "--bytes", &options->bytes,
             "of the call's larger buffer, for goal, chakra and et (default 1M)");
    add_int(*each, "--rank", &options->rank, {0, kFileRanksMax - 1},
            "for chakra, and for et to stdout (default 0)");
  }
  shows->add_option("--svg", options->svg, "draw into this SVG file (-: stdout)")
      ->type_name("FILE");
  verifies->add_option("--json", options->json, "write the verdicts to this file (-: stdout)")
      ->type_name("FILE");
  return {app, [=] {
            return exports->parsed()    ? run_export(*options)
                   : imports->parsed()  ? run_import(*options)
                   : verifies->parsed() ? run_verify_files(*options)
                   : runs->parsed()     ? run_on_ranks(*options)
                                        : run_show(*options);
          }};
}

}  // namespace plexus
