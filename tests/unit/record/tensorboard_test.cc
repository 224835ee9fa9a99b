// The bytes of TensorBoard files; tests/reference/tensorboard_reference.py reads them with TensorBoard
// itself.
#include "record/tensorboard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace mso {
namespace {

// RFC 3720, appendix B.4.
TEST(TensorBoard, Crc32cOfTheRfc) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string up, down;
  for (int i = 0; i < 32; ++i) up += static_cast<char>(i), down += static_cast<char>(31 - i);
  EXPECT_EQ(crc32c(up), 0x46dd794eu);
  EXPECT_EQ(crc32c(down), 0x113fdb5cu);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
}

// Worked out by hand from the wire format: keys 0x09 (1, 64-bit), 0x10 (2, varint), 0x2a (5, bytes) …
TEST(TensorBoard, EventBytes) {
  std::string expected(
      "\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x10\xac\x02\x2a\x0a\x0a\x08\x0a\x01\x61\x15\x00\x00\x00\x3f", 24);
  EXPECT_EQ(event_scalars(1.5, 300, {{"a", 0.5}}), expected);
}

TEST(TensorBoard, UnwritableFolderIsOnlyAWarning) {
  TensorBoardWriter writer("/proc/nothing/here", 1, 0);
  EXPECT_FALSE(writer.ok());
  writer.step(StepRecord{});
  writer.eval(EvalRecord{});
}

// Files for tests/reference/tensorboard_reference.py: MSO_WRITE_TENSORBOARD=FOLDER.
TEST(TensorBoard, WriteForReference) {
  const char* folder = std::getenv("MSO_WRITE_TENSORBOARD");
  char made[] = "/tmp/mso-tensorboard-XXXXXX";
  std::filesystem::path path = folder ? folder : ::mkdtemp(made);
  auto write = [&](int attempt, int64_t from, int64_t to) {
    TensorBoardWriter writer(path, attempt, from);
    ASSERT_TRUE(writer.ok());
    for (int64_t s = from + 1; s <= to; ++s) {
      StepRecord r;
      r.time = 1.7e9 + 100 * attempt + static_cast<double>(s);
      r.step = s, r.attempt = attempt, r.loss = 10.0 / static_cast<double>(s), r.grad_norm = 1.5, r.lr = 1e-4;
      r.tokens = 1000, r.step_s = 0.5, r.data_wait_s = 0.125;
      if (s == 5) r.loss = kNotANumber;
      writer.step(r);
      if (s % 10 == 0) writer.eval(EvalRecord{r.time, s, attempt, r.loss + 1, 10});
    }
  };
  write(1, 0, 23);
  write(2, 17, 40);
  if (!folder) std::filesystem::remove_all(path);
}

}  // namespace
}  // namespace mso
