// SPDX-License-Identifier: Apache-2.0
#include "core/selftest/link_sample.hpp"

#include <cmath>

#include "core/base/bytes.hpp"
#include "core/base/text.hpp"

namespace plexus {
namespace {

constexpr size_t kNameMax = 128;
constexpr size_t kErrorMax = 512;

void put_text(ByteWriter& writer, std::string_view text, size_t most) {
  writer.put_text<uint16_t>(text.substr(0, most));
}

/// A time or rate: finite and not negative.
double take_amount(ByteReader& reader, bool& is_right) {
  const auto value = reader.take<double>();
  is_right = is_right && std::isfinite(value) && value >= 0;
  return value;
}

}  // namespace

std::string encode(std::span<const LinkSample> samples) {
  ByteWriter writer;
  for (const LinkSample& sample : samples) {
    writer.put(sample.peer);
    writer.put(sample.channel);
    put_text(writer, sample.network, kNameMax);
    put_text(writer, sample.send_device, kNameMax);
    put_text(writer, sample.recv_device, kNameMax);
    writer.put(sample.latency_us);
    writer.put(sample.gb_per_s);
    writer.put(sample.gb_per_s_most);
    writer.put(sample.waited);
    writer.put(sample.sent);
    writer.put(sample.received);
    writer.put(sample.corrupt);
    put_text(writer, sample.error, kErrorMax);
  }
  return writer.take();
}

Result<std::vector<LinkSample>> decode_samples(std::string_view bytes, int nranks) {
  ByteReader reader(bytes);
  std::vector<LinkSample> samples;
  bool is_right = true;
  while (is_right && !reader.rest().empty()) {
    LinkSample sample;
    sample.peer = reader.take_between(0, nranks - 1);
    sample.channel = reader.take<uint32_t>();
    sample.network = printable(reader.take_text<uint16_t>(kNameMax));
    sample.send_device = printable(reader.take_text<uint16_t>(kNameMax));
    sample.recv_device = printable(reader.take_text<uint16_t>(kNameMax));
    sample.latency_us = take_amount(reader, is_right);
    sample.gb_per_s = take_amount(reader, is_right);
    sample.gb_per_s_most = take_amount(reader, is_right);
    sample.waited = take_amount(reader, is_right);
    sample.sent = reader.take<uint64_t>();
    sample.received = reader.take<uint64_t>();
    sample.corrupt = reader.take<uint64_t>();
    sample.error = printable(reader.take_text<uint16_t>(kErrorMax));
    is_right = is_right && !reader.broken();
    samples.push_back(std::move(sample));
  }
  if (!is_right) {
    return fail(Code::kRemoteError,
                "what another rank says of its links is malformed: use the same version of Plexus "
                "on all ranks");
  }
  return samples;
}

}  // namespace plexus
