// Fuzz target: an archive is indexed, and the bytes of an index are parsed. Whatever comes in is refused with an
// mso::Error or gives an index whose members lie inside the archive and that reads back equal.
// Input: first byte even: a tar archive; odd: the bytes of an .idx, whose checksum is put right when bit 1 is set, so
// that the checks behind it are reached.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "io/shard_index.h"
#include "io/tar_index.h"

namespace {

// Offsets of the header's fields (io/shard_index.cc).
constexpr size_t kHeaderBytes = 120, kSamplesAt = 40, kBodyChecksumAt = 96, kBlocksChecksumAt = 104, kHeaderChecksumAt = 112;

void check(const mso::IndexDraft& index) {
  for (const mso::SampleDraft& sample : index.samples) {
    if (sample.key.size() > 4096) abort();
    for (const mso::MemberDraft& member : sample.members)
      if (member.offset > index.tar_size || member.size > index.tar_size - member.offset) abort();
  }
  const std::string bytes = index.serialize();
  const auto again = mso::ShardIndex::from_bytes(bytes, "again");
  if (again->draft().serialize() != bytes) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int quiet = [] {
    mso::init_logging("error");
    return 0;
  }();
  (void)quiet;
  if (size == 0) return 0;
  try {
    if (data[0] % 2 == 1) {
      std::string bytes(reinterpret_cast<const char*>(data + 1), size - 1);
      if (data[0] % 4 == 3 && bytes.size() >= kHeaderBytes) {
        uint64_t samples = 0;
        std::memcpy(&samples, bytes.data() + kSamplesAt, 8);
        const std::string_view tables = std::string_view(bytes).substr(kHeaderBytes);
        const size_t blocks_end = std::min<uint64_t>(tables.size(), (samples / 4096 + (samples % 4096 > 0)) * 32);
        const uint64_t blocks = mso::hash64(tables.substr(0, blocks_end)), body = mso::hash64(tables.substr(blocks_end));
        std::memcpy(bytes.data() + kBodyChecksumAt, &body, 8);
        std::memcpy(bytes.data() + kBlocksChecksumAt, &blocks, 8);
        const uint64_t header = mso::hash64(std::string_view(bytes).substr(0, kHeaderChecksumAt));
        std::memcpy(bytes.data() + kHeaderChecksumAt, &header, 8);
      }
      const auto index = mso::ShardIndex::from_bytes(bytes, "fuzz.idx");
      if (index->size() < 4096) check(index->draft());
      return 0;
    }
    static const int fd = ::memfd_create("fuzz.tar", 0);
    static const std::string path = "/proc/self/fd/" + std::to_string(fd);
    if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, data + 1, size - 1, 0) != static_cast<ssize_t>(size - 1)) abort();
    mso::TarIndexLimits limits;
    limits.members = 4096;
    check(mso::build_index(path, limits));
  } catch (const mso::Error&) {
  }
  return 0;
}
