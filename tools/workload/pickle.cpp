// SPDX-License-Identifier: Apache-2.0
// Pickles of Python as JSON: dictionaries, lists, texts and numbers, as PyTorch's flight recorder
// dumps them. Nothing is imported or called: an object made by a function is its first argument
// (PyTorch marks lists of numbers so). By the opcodes of Python's pickletools, protocols 2 to 5.
#include <bit>
#include <cstring>
#include <deque>

#include "tools/workload/builder.hpp"

namespace plexus {
namespace {

constexpr size_t kNodesMax = 16'000'000;
constexpr size_t kMadeBytesMax = kWorkloadFileBytesMax;  // of JSON, about
constexpr int kNestedMax = 200;

struct PickleNode {
  enum class Kind : uint8_t { kScalar, kList, kDict } kind = Kind::kScalar;
  WorkloadJson scalar;
  std::vector<PickleNode*> items;  // of a dictionary: key, value, key, value
};

class PickleReader {
 public:
  explicit PickleReader(std::string_view bytes) : bytes_(bytes) {}

  Result<WorkloadJson> read() {
    while (!is_broken_ && !bytes_.empty() && nodes_.size() < kNodesMax) {
      const char opcode = take(1)[0];
      if (opcode == '.') {
        return end();
      }
      if (!read_number(opcode) && !read_text(opcode) && !read_container(opcode) &&
          !read_memo(opcode) && !read_object(opcode)) {
        break;
      }
    }
    return refuse();
  }

 private:
  Result<WorkloadJson> end() {
    const PickleNode* const whole = pop();
    WorkloadJson json = is_broken_ ? WorkloadJson() : make_json(*whole, 0);
    if (is_broken_) {
      return refuse();
    }
    return json;
  }

  static Result<WorkloadJson> refuse() {
    return fail(Code::kInvalidArgument,
                "is a pickle of Python that is cut off, broken or too large, or not of "
                "dictionaries, lists, texts and numbers");
  }

  std::string_view take(uint64_t length) {
    is_broken_ = is_broken_ || length > bytes_.size();
    const std::string_view taken = bytes_.substr(0, is_broken_ ? 0 : length);
    bytes_.remove_prefix(taken.size());
    return taken;
  }
  /// Of at most 8 bytes, the lowest first.
  uint64_t take_number(size_t size) {
    uint64_t value = 0;
    const std::string_view taken = take(size);
    for (size_t i = 0; i < taken.size(); ++i) {
      value |= uint64_t{static_cast<uint8_t>(taken[i])} << (8 * i);
    }
    return value;
  }
  std::string_view take_line() {
    const size_t end = bytes_.find('\n');
    is_broken_ = is_broken_ || end == std::string_view::npos;
    const std::string_view line = take(is_broken_ ? 0 : end);
    (void)take(1);
    return line;
  }

  PickleNode& push(WorkloadJson scalar, PickleNode::Kind kind = PickleNode::Kind::kScalar) {
    nodes_.push_back({.kind = kind, .scalar = std::move(scalar), .items = {}});
    stack_.push_back(&nodes_.back());
    return nodes_.back();
  }
  PickleNode* pop() {
    const size_t least = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() <= least) {
      is_broken_ = true;
      return &nothing_;
    }
    PickleNode* const top = stack_.back();
    stack_.pop_back();
    return top;
  }
  /// All above the last mark.
  std::vector<PickleNode*> pop_to_mark() {
    if (marks_.empty()) {
      is_broken_ = true;
      return {};
    }
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<PickleNode*> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return items;
  }
  void push_list(std::vector<PickleNode*> items) {
    push({}, PickleNode::Kind::kList).items = std::move(items);
  }
  void extend(const std::vector<PickleNode*>& items, PickleNode::Kind kind) {
    PickleNode* const container = pop();
    is_broken_ = is_broken_ || container->kind != kind ||
                 (kind == PickleNode::Kind::kDict && items.size() % 2 != 0);
    if (!is_broken_) {
      container->items.insert(container->items.end(), items.begin(), items.end());
      stack_.push_back(container);
    }
  }

  bool read_number(char opcode) {
    switch (opcode) {
      case 'N':
        push(nullptr);
        return true;
      case '\x88':
      case '\x89':
        push(opcode == '\x88');
        return true;
      case 'K':
        push(take_number(1));
        return true;
      case 'M':
        push(take_number(2));
        return true;
      case 'J':
        push(static_cast<int32_t>(take_number(4)));
        return true;
      case '\x8a':
        return read_long(take_number(1));
      case 'G': {
        uint64_t bits = 0;  // the highest byte first
        for (const char byte : take(8)) {
          bits = bits << 8 | static_cast<uint8_t>(byte);
        }
        push(std::bit_cast<double>(bits));
        return true;
      }
      default:
        return false;
    }
  }

  /// Beyond 64 bits: 0, which no field of a dump means.
  bool read_long(uint64_t length) {
    const std::string_view digits = take(length);
    if (digits.size() > 9 || (digits.size() == 9 && digits[8] != '\0')) {
      push(0);
      return true;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < std::min<size_t>(digits.size(), 8); ++i) {
      value |= uint64_t{static_cast<uint8_t>(digits[i])} << (8 * i);
    }
    const bool is_negative = !digits.empty() && digits.size() < 9 && (digits.back() & '\x80') != 0;
    const unsigned unused = static_cast<unsigned>(64 - 8 * std::min<size_t>(digits.size(), 8));
    if (is_negative) {
      push(static_cast<int64_t>(value << unused) >> unused);
    } else {
      push(value);
    }
    return true;
  }

  bool read_text(char opcode) {
    switch (opcode) {
      case 'X':
        push(std::string(take(take_number(4))));
        return true;
      case '\x8c':
        push(std::string(take(take_number(1))));
        return true;
      case '\x8d':
        push(std::string(take(take_number(8))));
        return true;
      default:
        return false;
    }
  }

  bool read_container(char opcode) {
    using Kind = PickleNode::Kind;
    switch (opcode) {
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case ']':
      case ')':
      case '}':
        push({}, opcode == '}' ? Kind::kDict : Kind::kList);
        return true;
      case 't':
        push_list(pop_to_mark());
        return true;
      case '\x85':
      case '\x86':
      case '\x87': {
        std::vector<PickleNode*> items(static_cast<size_t>(opcode - '\x84'));
        for (size_t i = items.size(); i > 0; --i) {
          items[i - 1] = pop();
        }
        push_list(std::move(items));
        return true;
      }
      case 'a': {
        PickleNode* const item = pop();
        extend({item}, Kind::kList);
        return true;
      }
      case 's': {
        PickleNode* const value = pop();
        PickleNode* const key = pop();
        extend({key, value}, Kind::kDict);
        return true;
      }
      case 'e':
        extend(pop_to_mark(), Kind::kList);
        return true;
      case 'u':
        extend(pop_to_mark(), Kind::kDict);
        return true;
      default:
        return false;
    }
  }

  bool read_memo(char opcode) {
    switch (opcode) {
      case 'q':
        return put(take_number(1));
      case 'r':
        return put(take_number(4));
      case '\x94':
        return put(memo_.size());
      case 'h':
        return get(take_number(1));
      case 'j':
        return get(take_number(4));
      default:
        return false;
    }
  }
  bool put(uint64_t place) {
    PickleNode* const top = pop();
    if (!is_broken_) {
      stack_.push_back(top);
      memo_[place] = top;
    }
    return true;
  }
  bool get(uint64_t place) {
    const auto known = memo_.find(place);
    is_broken_ = is_broken_ || known == memo_.end();
    if (!is_broken_) {
      stack_.push_back(known->second);
    }
    return true;
  }

  bool read_object(char opcode) {
    switch (opcode) {
      case '\x80':
        (void)take(1);
        return true;
      case '\x95':
        (void)take(8);
        return true;
      case '0':
        (void)pop();
        return true;
      case 'c':
        (void)take_line();
        (void)take_line();
        push(nullptr);
        return true;
      case '\x93':
        (void)pop();
        (void)pop();
        push(nullptr);
        return true;
      case 'R':
      case '\x81': {
        const PickleNode* const arguments = pop();
        PickleNode* const function = pop();
        stack_.push_back(arguments->items.empty() ? function : arguments->items.front());
        return true;
      }
      case 'b':
        (void)pop();
        return true;
      default:
        return false;
    }
  }

  /// What stands in several places is copied to each, within bounds.
  WorkloadJson make_json(const PickleNode& node, int nested) {
    made_ += sizeof(WorkloadJson) * 4;
    made_ += node.scalar.is_string() ? node.scalar.get_ref<const std::string&>().size() : 0;
    if (nested > kNestedMax || made_ > kMadeBytesMax) {
      is_broken_ = true;
      return {};
    }
    if (node.kind == PickleNode::Kind::kScalar) {
      return node.scalar;
    }
    if (node.kind == PickleNode::Kind::kList) {
      WorkloadJson list = WorkloadJson::array();
      for (size_t i = 0; i < node.items.size() && !is_broken_; ++i) {
        list.push_back(make_json(*node.items[i], nested + 1));
      }
      return list;
    }
    WorkloadJson dict = WorkloadJson::object();
    for (size_t i = 0; i + 1 < node.items.size() && !is_broken_; i += 2) {
      const WorkloadJson& key = node.items[i]->scalar;
      dict[key.is_string() ? key.get<std::string>() : key.dump()] =
          make_json(*node.items[i + 1], nested + 1);
    }
    return dict;
  }

  std::string_view bytes_;
  bool is_broken_ = false;
  std::deque<PickleNode> nodes_;
  PickleNode nothing_;
  std::vector<PickleNode*> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, PickleNode*> memo_;
  size_t made_ = 0;  // bytes
};

}  // namespace

Result<WorkloadJson> read_pickle(std::string_view bytes) { return PickleReader(bytes).read(); }

}  // namespace plexus
