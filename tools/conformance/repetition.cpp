// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/repetition.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "tools/conformance/repeat/text.hpp"
#include "tools/conformance/trial.hpp"

namespace plexus::conformance {
namespace {

namespace fs = std::filesystem;
using repeat::step;
constexpr size_t kBuffersMost = 8;
constexpr size_t kObjectsMost = 4096;  // as in repeat.c
constexpr int kUnknown = -1;

std::vector<std::string> split_words(const std::string& line) {
  std::istringstream text(line);
  std::vector<std::string> words;
  for (std::string word; text >> word;) {
    words.push_back(word);
  }
  return words;
}
uint64_t number_in(const std::vector<std::string>& words, size_t index) {
  return index < words.size() ? std::strtoull(words[index].c_str(), nullptr, 10) : 0;
}

/// Where a connection's end is.
struct End {
  size_t process;
  int object;
};
/// The ends that belong to a listening end, which its handle names.
struct Wiring {
  int handle;
  std::vector<End> sends;
  std::vector<End> recvs;
};
using Wirings = std::map<std::string, Wiring>;  // by fingerprint

/// Reads the trace of one process.
class Reader {
 public:
  Reader(size_t process, Wirings& wirings) : process_(process), wirings_(&wirings) {}

  Result<std::vector<step>> read(std::istream& lines) {
    for (std::string line; std::getline(lines, line);) {
      std::vector<std::string> words = split_words(line);
      PLEXUS_TRY(expect(words.size() >= 2, "the trace has the line '{}'", line));
      const std::string thread = words[0];
      words.erase(words.begin());
      PLEXUS_TRY(take(thread, words));
    }
    for (const auto& [thread, begun] : begun_) {
      post(begun, "");  // the process ended in this call
    }
    if (objects_ > kObjectsMost || requests_ > kObjectsMost) {
      return wrong("the check has more than {} requests or ends", kObjectsMost);
    }
    return std::move(steps_);
  }

 private:
  int new_object() { return static_cast<int>(objects_++); }
  step& add(int what, const char* name) { return steps_.emplace_back(make_step(what, name)); }
  Wiring& wiring_of(const std::string& fingerprint) {
    const auto number = static_cast<int>(wirings_->size());
    return wirings_->try_emplace(fingerprint, Wiring{number, {}, {}}).first->second;
  }

  Result<void> take(const std::string& thread, const std::vector<std::string>& words) {
    const std::string& what = words[0];
    if (what == "init") {
      step& made = add(repeat::kInitialise, "init");
      made.object = object_of_["context " + words[1]] = new_object();
      made.number = static_cast<int>(number_in(words, 2));
    } else if (what == "listen") {
      step& made = add(repeat::kStartListening, "listen");
      made.object = object_of_["listen " + words[3]] = new_object();
      made.on = object_of_["context " + words[1]];
      made.number = static_cast<int>(number_in(words, 2));
      made.handle = wiring_of(words[4]).handle;
      fingerprint_of_[made.object] = words[4];
    } else if (what == "connect") {
      step& made = add(repeat::kConnect, "connect");
      made.object = object_of_["end " + words[1]] = new_object();
      made.on = object_of_["context " + words[2]];
      made.number = static_cast<int>(number_in(words, 3));
      Wiring& wiring = wiring_of(words[4]);
      made.handle = wiring.handle;
      wiring.sends.push_back({process_, made.object});
    } else if (what == "accept") {
      step& made = add(repeat::kAccept, "accept");
      made.object = object_of_["end " + words[1]] = new_object();
      made.on = object_of_["listen " + words[2]];
      wiring_of(fingerprint_of_[made.on]).recvs.push_back({process_, made.object});
    } else if (what == "connected") {
      add(repeat::kConnected, "connect and accept").object = object_of_["end " + words[1]];
    } else if (what == "meet") {
      add(repeat::kMeet, "a barrier with the other process");
    } else {
      take_request(thread, words);
    }
    return ok();
  }

  void take_request(const std::string& thread, const std::vector<std::string>& words) {
    const std::string& what = words[0];
    if (what == "isend" || what == "irecv") {
      begun_[thread] = words;
    } else if (what == "ok" || what == "failed") {
      post(begun_[thread], what == "ok" ? words[1] : "");
      begun_.erase(thread);
    } else if (what == "again") {
      begun_.erase(thread);
    } else if (what == "done" && request_of_.contains(words[1])) {
      add(repeat::kDone, "test").number = static_cast<int>(request_of_[words[1]]);
    }
  }

  /// Words: isend END BYTES TAG OFFSET IS_NULL, irecv with several of the last four.
  void post(const std::vector<std::string>& words, const std::string& request) {
    const bool is_send = words[0] == "isend";
    step& made = add(is_send ? repeat::kSend : repeat::kRecv, is_send ? "isend" : "irecv");
    made.on = object_of_["end " + words[1]];
    constexpr size_t kWords = 4;
    for (size_t at = 2; at + kWords <= words.size() && made.count < int{kBuffersMost};
         at += kWords) {
      repeat::buffer& buffer = made.buffers[made.count++];
      buffer.bytes = number_in(words, at);
      buffer.tag = std::atoi(words[at + 1].c_str());
      buffer.offset = static_cast<int>(number_in(words, at + 2));
      buffer.is_null = static_cast<int>(number_in(words, at + 3));
      buffer.message = kUnknown;
    }
    request_of_[request] = requests_++;
  }

  size_t process_;
  Wirings* wirings_;
  std::vector<step> steps_;
  size_t objects_ = 0;
  size_t requests_ = 0;
  std::map<std::string, int> object_of_;  // by kind and name in the trace
  std::map<int, std::string> fingerprint_of_;
  std::map<std::string, size_t> request_of_;
  std::map<std::string, std::vector<std::string>> begun_;  // isend or irecv, by thread
};

/// Numbers the messages, and says which buffer receives which.
void match_messages(Program& program, const Wirings& wirings) {
  int messages = 0;
  for (auto& steps : program.processes) {
    for (step& each : steps) {
      if (each.what == repeat::kSend) {
        each.buffers[0].message = messages++;
      }
    }
  }
  for (const auto& [fingerprint, wiring] : wirings) {
    if (wiring.sends.size() != 1 || wiring.recvs.size() != 1) {
      continue;  // it is not known which are the ends of one connection
    }
    std::map<int, std::deque<repeat::buffer>> sent;  // by tag
    for (const step& each : program.processes[wiring.sends[0].process]) {
      if (each.what == repeat::kSend && each.on == wiring.sends[0].object) {
        sent[each.buffers[0].tag].push_back(each.buffers[0]);
      }
    }
    for (step& each : program.processes[wiring.recvs[0].process]) {
      const bool is_here = each.what == repeat::kRecv && each.on == wiring.recvs[0].object;
      for (int i = 0; is_here && i < each.count; ++i) {
        auto& queue = sent[each.buffers[i].tag];
        if (!queue.empty()) {
          each.buffers[i].message = queue.front().message;
          each.buffers[i].message_bytes = queue.front().bytes;
          queue.pop_front();
        }
      }
    }
  }
}

std::set<int> messages_received(const Program& program) {
  std::set<int> messages;
  for (const auto& steps : program.processes) {
    for (const step& each : steps) {
      for (int i = 0; each.what == repeat::kRecv && i < each.count; ++i) {
        messages.insert(each.buffers[i].message);
      }
    }
  }
  messages.erase(kUnknown);
  return messages;
}

/// And the messages that are received in one request with those of `kept`.
std::set<int> complete_groups(const Program& program, std::set<int> kept) {
  for (const auto& steps : program.processes) {
    for (const step& each : steps) {
      const auto* const end = each.buffers + each.count;
      const bool is_kept = each.what == repeat::kRecv &&
                           std::any_of(each.buffers, end,
                                       [&](const auto& one) { return kept.contains(one.message); });
      for (const auto* one = each.buffers; is_kept && one != end; ++one) {
        kept.insert(one->message);
      }
    }
  }
  return kept;
}

/// Without the messages that are not in `kept`. Each process ends by waiting for what it began and
/// the other end answers.
Program keep(const Program& program, const std::set<int>& kept, const std::set<int>& received) {
  Program smaller;
  for (const auto& steps : program.processes) {
    std::vector<step>& own = smaller.processes.emplace_back();
    std::map<int, int> new_number;  // of requests
    std::set<int> undone;           // requests that can end
    int requests = 0;
    for (const step& each : steps) {
      const bool is_post = each.what == repeat::kSend || each.what == repeat::kRecv;
      bool is_kept = !is_post && each.what != repeat::kDone;
      bool can_end = is_post;
      for (int i = 0; is_post && i < each.count; ++i) {
        const int message = each.buffers[i].message;
        is_kept = is_kept || !received.contains(message) || kept.contains(message);
        can_end = can_end && received.contains(message);
      }
      if (is_post) {
        if (is_kept) {
          const auto number = static_cast<int>(new_number.size());
          new_number[requests] = number;
          if (can_end) {
            undone.insert(number);
          }
        }
        ++requests;
      }
      step copy = each;
      if (each.what == repeat::kDone && new_number.contains(each.number)) {
        copy.number = new_number[each.number];
        undone.erase(copy.number);
        is_kept = true;
      }
      if (is_kept) {
        own.push_back(copy);
      }
    }
    for (const int number : undone) {
      step& done = own.emplace_back(make_step(repeat::kDone, "test"));
      done.number = number;
    }
  }
  return smaller;
}

struct Smallest {
  Program program;
  bool always_fails;
};

/// The shortest of some beginnings and ends of the messages that always fails; else all of them.
Smallest find_smallest(const Subject& subject,
                       const Identity& identity,
                       const Program& program,
                       const std::set<int>& messages) {
  for (size_t count = 1; count < messages.size(); count *= 2) {
    const auto size = static_cast<std::ptrdiff_t>(count);
    const std::set<int> first(messages.begin(), std::next(messages.begin(), size));
    const std::set<int> last(std::prev(messages.end(), size), messages.end());
    for (const std::set<int>& kept : {first, last}) {
      Program smaller = keep(program, complete_groups(program, kept), messages);
      if (always_fails(subject, identity, smaller)) {
        return {smaller, true};
      }
    }
  }
  Program whole = keep(program, messages, messages);
  const bool is_certain = always_fails(subject, identity, whole);
  return {std::move(whole), is_certain};
}

// ---- text ----

std::string format_buffer(const repeat::buffer& buffer) {
  std::string text = fmt::format("{{.bytes = {}, .tag = {}, .message = {}", buffer.bytes,
                                 buffer.tag, buffer.message);
  for (const auto& [name, value] : {std::pair{"message_bytes", buffer.message_bytes},
                                    std::pair{"offset", static_cast<uint64_t>(buffer.offset)},
                                    std::pair{"is_null", static_cast<uint64_t>(buffer.is_null)}}) {
    text += value == 0 ? "" : fmt::format(", .{} = {}", name, value);
  }
  return text + "}";
}

std::string format_step(const step& each) {
  constexpr std::array kNames = {"kEnd",    "kInitialise", "kStartListening", "kConnect",
                                 "kAccept", "kConnected",  "kSend",           "kRecv",
                                 "kDone",   "kMeet"};
  std::string text = fmt::format("    {{.what = {}, .name = \"{}\"",
                                 kNames[static_cast<size_t>(each.what)], each.name);
  for (const auto& [name, value] :
       {std::pair{"object", each.object}, std::pair{"on", each.on},
        std::pair{"number", each.number}, std::pair{"handle", each.handle},
        std::pair{"count", each.count}}) {
    text += value == 0 ? "" : fmt::format(", .{} = {}", name, value);
  }
  if (each.count > 0) {
    text += ", .buffers = {";
    for (int i = 0; i < each.count; ++i) {
      text += (i == 0 ? "" : ", ") + format_buffer(each.buffers[i]);
    }
    text += "}";
  }
  return text + "},\n";
}

std::string in_comment(std::string text) {
  for (size_t at = text.find("*/"); at != std::string::npos; at = text.find("*/", at)) {
    text.replace(at, 2, "* /");
  }
  return text;
}

std::string format_program(const Subject& subject,
                           const Identity& identity,
                           const Verdict& verdict,
                           const Smallest& smallest) {
  const Program& program = smallest.program;
  const Check& check = *verdict.check;
  std::string text = fmt::format(
      "/* {}: {}\n * rule: {}\n * {} {}: {}\n *\n * This program repeats the check `{}` of `plexus "
      "plugin check`, without the kit:\n *   cc -std=gnu11 {}FILE.c -ldl && ./a.out {}\n * Exit "
      "code 0: nothing went wrong; 1: the failure, which it describes.{} */\n",
      check.id, check.title, in_comment(check.rule), identity.name, identity.abi,
      in_comment(verdict.detail), check.id, is_native(identity) ? "-I PREFIX/include " : "",
      subject.file.string(),
      smallest.always_fails
          ? ""
          : " It depends on time:\n * where the check was made it did not fail in all runs.");
  text += repeat::kStepsText;
  text += is_native(identity) ? repeat::kNativeText : repeat::kNcclText;
  text += repeat::kRepeatText;
  std::string names;
  for (size_t process = 0; process < program.processes.size(); ++process) {
    text += fmt::format("\nstatic const struct step process_{}[] = {{\n", process);
    for (const step& each : program.processes[process]) {
      text += format_step(each);
    }
    text += "    {.what = kEnd}};\n";
    names += fmt::format("{}process_{}", process == 0 ? "" : ", ", process);
  }
  return text + fmt::format(
                    "\nint main(int argc, char** argv) {{\n  const struct step* steps[] = {{{}}};\n"
                    "  const int is_wrong = repeat(argc > 1 ? argv[1] : \"{}\", {}, steps, {});\n"
                    "  printf(is_wrong ? \"it fails\\n\" : \"nothing went wrong\\n\");\n"
                    "  return is_wrong;\n}}\n",
                    names, subject.file.string(), abi_version(identity), program.processes.size());
}

/// A folder that ends with its owner.
class Folder {
 public:
  Folder() : path_((fs::temp_directory_path() / "plexus-check-XXXXXX").string()) {
    is_made_ = ::mkdtemp(path_.data()) != nullptr;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  [[nodiscard]] bool is_made() const noexcept { return is_made_; }
  [[nodiscard]] fs::path path() const { return path_; }

 private:
  std::string path_;
  bool is_made_ = false;
};

Result<Program> read_program(const fs::path& folder, uint32_t processes) {
  Program program;
  Wirings wirings;
  for (uint32_t process = 0; process < processes; ++process) {
    std::ifstream lines(folder / std::to_string(process));
    PLEXUS_TRY(steps, Reader(process, wirings).read(lines));
    program.processes.push_back(std::move(steps));
  }
  match_messages(program, wirings);
  return program;
}

}  // namespace

bool is_repeatable(const Check& check) {
  // Not those that expect a failing call, which such a program takes for the failure.
  constexpr std::array<std::string_view, 3> kNot = {"request.too_long", "group.too_long",
                                                    "group.too_many"};
  const std::string_view id = check.id;
  const std::string_view group = id.substr(0, id.find('.'));
  constexpr std::array<std::string_view, 7> kGroups = {"message",  "order", "group",  "request",
                                                       "parallel", "mesh",  "process"};
  return std::find(kGroups.begin(), kGroups.end(), group) != kGroups.end() &&
         std::find(kNot.begin(), kNot.end(), id) == kNot.end();
}

Result<std::string> make_repetition(const Subject& subject,
                                    const Identity& identity,
                                    const Verdict& verdict) {
  const Folder folder;
  if (!folder.is_made()) {
    return wrong("no folder can be made in {}", fs::temp_directory_path().string());
  }
  Subject traced = subject;
  traced.trace = folder.path();
  PLEXUS_TRY(again, run_alone(traced, *verdict.check));
  if (again.outcome != Outcome::kFail) {
    return wrong("the check did not fail again");
  }
  PLEXUS_TRY(program, read_program(folder.path(), verdict.check->options.processes));
  const std::set<int> messages = messages_received(program);
  if (!fails(subject, identity, keep(program, messages, messages))) {
    return wrong("the check's calls alone do not fail");
  }
  return format_program(subject, identity, again,
                        find_smallest(subject, identity, program, messages));
}

}  // namespace plexus::conformance
