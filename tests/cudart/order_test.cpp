// SPDX-License-Identifier: Apache-2.0
// The order of work on streams, by random programs, against a model of CUDA's rules. Every piece of
// work takes a picture of the flags of all pieces and then sets its own; in its picture the flags
// of all that the model puts before it must be set.
#include <bitset>
#include <chrono>
#include <cstring>
#include <cuda_runtime.h>
#include <map>
#include <nccl.h>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace {

constexpr int kPieces = 160;
constexpr int kDevices = 2;
constexpr int kStreamsPerDevice = 4;
constexpr int kEvents = 6;
constexpr size_t kShort = 256;
constexpr size_t kLong = size_t{128} * 1024;  // done by a thread of its own

// Copies of flags that others set at the same time are races to ThreadSanitizer: there all pieces
// are host functions.
#ifdef __SANITIZE_THREAD__
constexpr bool kCopies = false;
#else
constexpr bool kCopies = true;
#endif

using Set = std::bitset<kPieces>;

#define OK(call) ASSERT_EQ(call, cudaSuccess) << #call

struct TestStream {
  cudaStream_t handle;
  int device;
  bool is_blocking;
  bool is_legacy;
  Set before{};  // what comes before the next piece on it
};

struct TestEvent {
  cudaEvent_t handle = nullptr;
  int device = 0;
  Set before{};
};

/// What a piece that is a host function needs.
struct Piece {
  unsigned char* flags;
  unsigned char* picture;
  int number;
  int delay_us;
};

void run_piece(void* user) {
  auto& piece = *static_cast<Piece*>(user);
  std::memcpy(piece.picture, piece.flags, kPieces);
  if (piece.delay_us > 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(piece.delay_us));
  }
  piece.flags[piece.number] = 1;
}

class RandomProgram {
 public:
  explicit RandomProgram(unsigned seed) : random_(seed), pieces_(kPieces), expected_(kPieces) {}

  void run() {
    prepare();
    while (next_ < kPieces && !testing::Test::HasFatalFailure()) {
      step();
    }
    for (int device = 0; device < kDevices; ++device) {
      OK(cudaSetDevice(device));
      OK(cudaDeviceSynchronize());
    }
    for (int piece = 0; piece < kPieces; ++piece) {
      expect_set(pictures_ + static_cast<size_t>(piece) * kLong, expected_[size(piece)],
                 "the picture of piece " + std::to_string(piece));
    }
    clean_up();
  }

 private:
  static size_t size(int n) { return static_cast<size_t>(n); }
  int pick(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }

  void prepare() {
    OK(cudaMallocHost(&flags_, kLong));
    OK(cudaMallocHost(&pictures_, kPieces * kLong));
    std::memset(flags_, 0, kLong);
    std::memset(pictures_, 0, kPieces * kLong);
    for (int device = 0; device < kDevices; ++device) {
      ASSERT_EQ(ncclCommInitAll(&comms_[device], 1, &device), ncclSuccess);
      OK(cudaSetDevice(device));
      streams_.push_back({nullptr, device, true, true});
      streams_.push_back({cudaStreamPerThread, device, true, false});
      for (int i = 0; i < kStreamsPerDevice; ++i) {
        const bool is_blocking = pick(2) == 0;
        cudaStream_t made = nullptr;
        OK(cudaStreamCreateWithFlags(&made,
                                     is_blocking ? cudaStreamDefault : cudaStreamNonBlocking));
        streams_.push_back({made, device, is_blocking, false});
      }
      for (int i = 0; i < kEvents; ++i) {
        TestEvent event;
        event.device = device;
        OK(cudaEventCreateWithFlags(&event.handle, pick(2) == 0 ? 0 : cudaEventDisableTiming));
        events_.push_back(event);
      }
    }
  }

  void clean_up() {
    for (const TestStream& stream : streams_) {
      if (!stream.is_legacy && stream.handle != cudaStreamPerThread) {
        OK(cudaStreamDestroy(stream.handle));
      }
    }
    for (const TestEvent& event : events_) {
      OK(cudaEventDestroy(event.handle));
    }
    for (ncclComm_t comm : comms_) {
      ASSERT_EQ(ncclCommDestroy(comm), ncclSuccess);
    }
    OK(cudaFreeHost(flags_));
    OK(cudaFreeHost(pictures_));
  }

  /// What comes before the next piece on `stream`, by CUDA's rules.
  Set before(const TestStream& stream) {
    Set all = stream.before;
    for (const TestStream& other : streams_) {
      const bool is_ordered = other.device == stream.device && other.is_blocking &&
                              (stream.is_legacy || (other.is_legacy && stream.is_blocking));
      if (is_ordered) {
        all |= other.before;
      }
    }
    return all;
  }

  void step() {
    TestStream& stream = streams_[size(pick(static_cast<int>(streams_.size())))];
    OK(cudaSetDevice(stream.device));
    switch (pick(12)) {
      case 0:
        return record(stream);
      case 1:
      case 2:
        return wait(stream);
      case 3:
        OK(cudaStreamSynchronize(stream.handle));
        return expect_set(flags_, stream.is_legacy ? before(stream) : stream.before,
                          "the flags after cudaStreamSynchronize");
      case 4:
        return synchronize_event();
      default:
        return put_piece(stream);
    }
  }

  void record(TestStream& stream) {
    TestEvent& event = events_[size(stream.device * kEvents + pick(kEvents))];
    OK(cudaEventRecord(event.handle, stream.handle));
    stream.before = before(stream);
    event.before = stream.before;
  }
  void wait(TestStream& stream) {
    const TestEvent& event = events_[size(pick(static_cast<int>(events_.size())))];
    OK(cudaStreamWaitEvent(stream.handle, event.handle, 0));
    stream.before = before(stream) | event.before;
  }
  void synchronize_event() {
    const TestEvent& event = events_[size(pick(static_cast<int>(events_.size())))];
    OK(cudaEventSynchronize(event.handle));
    expect_set(flags_, event.before, "the flags after cudaEventSynchronize");
  }

  void put_piece(TestStream& stream) {
    const int number = next_++;
    expected_[size(number)] = before(stream);
    unsigned char* const picture = pictures_ + size(number) * kLong;
    switch (const int kind = pick(4); kCopies ? kind : 3) {
      case 0:
        OK(cudaMemcpyAsync(picture, flags_, kShort, cudaMemcpyDefault, stream.handle));
        break;
      case 1:
        OK(cudaMemcpyAsync(picture, flags_, kLong, cudaMemcpyDefault, stream.handle));
        break;
      case 2:
        ASSERT_EQ(ncclAllGather(flags_, picture, kPieces, ncclUint8, comms_[stream.device],
                                stream.handle),
                  ncclSuccess);
        break;
      default:
        pieces_[size(number)] = {flags_, picture, number, pick(3) == 0 ? 200 : 0};
        OK(cudaLaunchHostFunc(stream.handle, run_piece, &pieces_[size(number)]));
        stream.before = expected_[size(number)];
        stream.before.set(size(number));
        return;
    }
    OK(cudaMemsetAsync(flags_ + number, 1, 1, stream.handle));
    stream.before = expected_[size(number)];
    stream.before.set(size(number));
  }

  static void expect_set(const unsigned char* flags, const Set& expected, const std::string& what) {
    for (int i = 0; i < kPieces; ++i) {
      if (expected[size(i)]) {
        ASSERT_EQ(flags[i], 1) << what << ": piece " << i << " comes before";
      }
    }
  }

  std::mt19937 random_;
  unsigned char* flags_ = nullptr;
  unsigned char* pictures_ = nullptr;
  ncclComm_t comms_[kDevices] = {};
  std::vector<TestStream> streams_;
  std::vector<TestEvent> events_;
  std::vector<Piece> pieces_;
  std::vector<Set> expected_;
  int next_ = 0;
};

class Order : public testing::TestWithParam<unsigned> {};

TEST_P(Order, IsCudasForARandomProgram) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  RandomProgram program(GetParam());
  program.run();
}
INSTANTIATE_TEST_SUITE_P(Seeds, Order, testing::Range(1U, 61U));

/// The legacy stream of one device does not wait for another device's work.
TEST(LegacyStream, IsOfItsDevice) {
  struct Gate {
    std::atomic<bool> is_open{false};
    static void wait(void* user) { static_cast<Gate*>(user)->is_open.wait(false); }
  };
  Gate gate;
  cudaStream_t other = nullptr;
  OK(cudaSetDevice(1));
  OK(cudaStreamCreate(&other));
  OK(cudaLaunchHostFunc(other, Gate::wait, &gate));
  OK(cudaSetDevice(0));
  int* memory = nullptr;
  OK(cudaMalloc(&memory, sizeof(int)));
  OK(cudaMemset(memory, 0, sizeof(int)));
  OK(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(cudaStreamQuery(other), cudaErrorNotReady);
  gate.is_open.store(true);
  gate.is_open.notify_all();
  OK(cudaStreamSynchronize(other));
  OK(cudaStreamDestroy(other));
  OK(cudaFree(memory));
}

/// A source on the caller's stack may change when cudaMemcpyAsync has returned.
TEST(PageableMemory, IsReadBeforeTheCallReturns) {
  struct Gate {
    std::atomic<bool> is_open{false};
    static void wait(void* user) { static_cast<Gate*>(user)->is_open.wait(false); }
  };
  Gate gate;
  cudaStream_t stream = nullptr;
  OK(cudaSetDevice(0));
  OK(cudaStreamCreate(&stream));
  int* memory = nullptr;
  OK(cudaMalloc(&memory, sizeof(int)));
  OK(cudaLaunchHostFunc(stream, Gate::wait, &gate));
  int source = 7;
  OK(cudaMemcpyAsync(memory, &source, sizeof(int), cudaMemcpyHostToDevice, stream));
  source = 8;
  gate.is_open.store(true);
  gate.is_open.notify_all();
  int result = 0;
  OK(cudaMemcpyAsync(&result, memory, sizeof(int), cudaMemcpyDeviceToHost, stream));
  EXPECT_EQ(result, 7);  // a pageable destination is written, too
  OK(cudaStreamDestroy(stream));
  OK(cudaFree(memory));
}

}  // namespace
