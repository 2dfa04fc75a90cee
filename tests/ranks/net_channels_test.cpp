// SPDX-License-Identifier: Apache-2.0
// Messages over the network that several channels share (NCCL_NCHANNELS_PER_NET_PEER, 3 here): what
// programs may rely on is as with one.
#include <algorithm>

#include "tests/ranks/job.hpp"

namespace plexus {
namespace {

using testing_job::Job;
using Bytes = std::vector<uint8_t>;

constexpr size_t kPart = size_t{128} * 1024;  // no part of a shared message is smaller
constexpr size_t kLong = 5 * kPart + 7;       // for all channels, in parts that are not even

Bytes make_bytes(size_t size, size_t seed) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<uint8_t>((i * 31 + i / 251 + seed) % 253);
  }
  return bytes;
}

ncclResult_t move(const Bytes& sent, Bytes& received, int rank, ncclComm_t comm) {
  return rank == 0 ? ncclSend(sent.data(), sent.size(), ncclUint8, 1, comm, nullptr)
                   : ncclRecv(received.data(), received.size(), ncclUint8, 0, comm, nullptr);
}

TEST(NetChannels, CarryMessagesOfEverySize) {
  Job job(2);
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{63}, kPart - 1, 2 * kPart - 1, 2 * kPart, 2 * kPart + 1,
        3 * kPart, kLong, size_t{5} << 20, (size_t{5} << 20) + 3, size_t{64} << 20}) {
    const Bytes sent = make_bytes(size, size);
    Bytes received(size);
    job.run_in_group([&](int rank, ncclComm_t comm) { return move(sent, received, rank, comm); });
    EXPECT_TRUE(received == sent) << size << " bytes";
  }
}

TEST(NetChannels, DivideAMessageAlikeForTheTypesOfBothEnds) {
  Job job(2);
  const Bytes sent = make_bytes(3 * kPart + 24, 0);
  Bytes received(sent.size());
  job.run_in_group([&](int rank, ncclComm_t comm) {
    return rank == 0 ? ncclSend(sent.data(), sent.size() / 8, ncclInt64, 1, comm, nullptr)
                     : ncclRecv(received.data(), sent.size(), ncclUint8, 0, comm, nullptr);
  });
  EXPECT_TRUE(received == sent);
}

TEST(NetChannels, KeepTheOrderOfAThousandMessagesOfManySizes) {
  constexpr size_t kMessages = 1000;
  const std::vector<size_t> sizes = {1, kLong, 0, 2 * kPart, 500, 2 * kPart + 64};
  const Bytes source = make_bytes(2 * kLong, 1);
  std::vector<Bytes> received(kMessages);
  Job job(2);
  job.run_in_group([&](int rank, ncclComm_t comm) {
    for (size_t i = 0; i < kMessages; ++i) {
      const size_t size = sizes[i % sizes.size()];
      received[i].resize(size);
      const ncclResult_t result =
          rank == 0 ? ncclSend(source.data() + i, size, ncclUint8, 1, comm, nullptr)
                    : ncclRecv(received[i].data(), size, ncclUint8, 0, comm, nullptr);
      EXPECT_EQ(result, ncclSuccess);
    }
    return ncclSuccess;
  });
  for (size_t i = 0; i < kMessages; ++i) {
    EXPECT_TRUE(std::equal(received[i].begin(), received[i].end(), source.data() + i))
        << "message " << i;
  }
}

TEST(NetChannels, ExchangeInGroupsWhoseCallsComeInAnyOrder) {
  constexpr int kRanks = 3;
  std::vector<Bytes> sent;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    sent.push_back(make_bytes(kLong + 100 * rank, rank));
  }
  std::vector<std::vector<Bytes>> received(kRanks, std::vector<Bytes>(kRanks));
  Job job(kRanks);
  for (int round = 0; round < 5; ++round) {
    const auto results = job.run_in_threads([&](int rank, ncclComm_t comm) {
      const auto me = static_cast<size_t>(rank);
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      for (int i = 0; i < 2 * kRanks; ++i) {
        const int call = (i + round * (rank + 1)) % (2 * kRanks);
        const int peer = call / 2;
        Bytes& target = received[me][static_cast<size_t>(peer)];
        target.assign(sent[static_cast<size_t>(peer)].size(), 0);
        EXPECT_EQ(call % 2 == 0
                      ? ncclSend(sent[me].data(), sent[me].size(), ncclUint8, peer, comm, nullptr)
                      : ncclRecv(target.data(), target.size(), ncclUint8, peer, comm, nullptr),
                  ncclSuccess);
      }
      return ncclGroupEnd();
    });
    EXPECT_EQ(results, std::vector<ncclResult_t>(kRanks, ncclSuccess));
    for (const auto& of_rank : received) {
      EXPECT_TRUE(of_rank == sent);
    }
  }
}

TEST(NetChannels, PassCollectivesWithCountsPerRankBesideMessages) {
  constexpr size_t kRanks = 2;
  const std::vector<size_t> counts(kRanks, kLong);
  const std::vector<size_t> displacements = {0, kLong};
  const std::vector<Bytes> sent = {make_bytes(kRanks * kLong, 1), make_bytes(kRanks * kLong, 2)};
  std::vector<Bytes> gathered(kRanks, Bytes(kRanks * kLong));
  Bytes received(kLong);
  Job job(kRanks);
  job.run_in_group([&](int rank, ncclComm_t comm) {
    const auto me = static_cast<size_t>(rank);
    EXPECT_EQ(rank == 0 ? ncclSend(sent[0].data(), kLong, ncclUint8, 1, comm, nullptr)
                        : ncclRecv(received.data(), kLong, ncclUint8, 0, comm, nullptr),
              ncclSuccess);
    return plexusAllToAllV(sent[me].data(), counts.data(), displacements.data(),
                           gathered[me].data(), counts.data(), displacements.data(), ncclUint8,
                           comm, nullptr);
  });
  EXPECT_TRUE(std::equal(received.begin(), received.end(), sent[0].begin()));
  for (size_t me = 0; me < kRanks; ++me) {
    for (size_t peer = 0; peer < kRanks; ++peer) {
      EXPECT_TRUE(std::equal(sent[peer].begin() + static_cast<std::ptrdiff_t>(me * kLong),
                             sent[peer].begin() + static_cast<std::ptrdiff_t>((me + 1) * kLong),
                             gathered[me].begin() + static_cast<std::ptrdiff_t>(peer * kLong)));
    }
  }
}

/// The receiver compares; a sender whose message has left is done.
TEST(NetChannels, FindCountsThatDoNotMatchThoughOneEndUsesFewer) {
  for (const bool sends_long : {true, false}) {
    Job job(2);
    Bytes sent(sends_long ? kLong : 10);
    Bytes received(sends_long ? 10 : kLong);
    const auto results = job.run_in_threads(
        [&](int rank, ncclComm_t comm) { return move(sent, received, rank, comm); });
    EXPECT_EQ(results[1], ncclInvalidUsage);
  }
}

}  // namespace
}  // namespace plexus
