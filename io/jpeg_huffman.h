// Huffman decoding of JPEG pictures of one scan, in place of libjpeg-turbo's, which spends most of its time there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>
// jpeglib.h needs size_t and FILE declared before it.
#include <jpeglib.h>

namespace mso {

// One picture at a time; its memory is used again for the next one.
//
// Only for what is whole and usual. Whatever is not (damage, bytes left over, an unusual stream) is given up and must be
// decoded anew by libjpeg itself, so that what is refused, and why, is libjpeg's decision alone.
class JpegHuffman {
 public:
  // Between jpeg_start_decompress() and the first line: from here on `cinfo` decodes through this object, which must live
  // longer. False, with nothing changed, for progressive and arithmetic coding, several scans, restart markers, data
  // without an end, and a libjpeg whose inner interface is not known.
  bool take_over(j_decompress_ptr cinfo);

  // Once after an error of `cinfo`: whether it came from here, and nothing is known about the picture.
  bool gave_up() { return std::exchange(gave_up_, false); }

 private:
  static constexpr int kLookBits = 10;
  struct Table {
    uint64_t look[1 << kLookBits];  // by the next kLookBits bits, which are decoded at once
    // For longer ones, by length of code: codes are below `limit` where aligned to 16 bits; symbols begin at `offset`.
    uint32_t limit[18];
    int offset[18];
    uint8_t bits[17], symbols[256];  // as the file has them

    void build(const JHUFF_TBL& from, bool dc);
    bool is_of(const JHUFF_TBL& from) const;
  };
  struct Bits {
    uint64_t next = 0;  // the first bit is the highest
    int count = 0;      // of bits in it
    const uint8_t* from = nullptr;
  };
  // libjpeg's struct jpeg_entropy_decoder (jpegint.h, not installed), the same since 1998.
  struct Entropy {
    void (*start_pass)(j_decompress_ptr);
    boolean (*decode_mcu)(j_decompress_ptr, JBLOCKROW*);
    boolean insufficient_data;
    JpegHuffman* self;
  };

  bool collect(const JOCTET* from, const JOCTET* end);
  static boolean decode_mcu(j_decompress_ptr cinfo, JBLOCKROW* blocks);
  static boolean decode_mcu_plain(j_decompress_ptr cinfo, JBLOCKROW* blocks);
  static boolean decode_mcu_bmi2(j_decompress_ptr cinfo, JBLOCKROW* blocks);
  [[noreturn]] static void give_up(j_decompress_ptr cinfo);
  static uint32_t long_symbol(const Table& table, uint64_t next);
  static bool decode_dc(const Table& table, Bits* bits, int* difference);
  static bool decode_ac(const Table& table, Bits* bits, JCOEF* block);

  Entropy entropy_{};
  Table dc_[NUM_HUFF_TBLS], ac_[NUM_HUFF_TBLS];
  bool built_[2][NUM_HUFF_TBLS] = {};
  std::vector<uint8_t> bytes_;  // without the zeros stuffed behind 0xFF; kPadding more behind them
  size_t size_ = 0;
  const JOCTET* marker_ = nullptr;  // behind them in the file
  Bits bits_;
  int last_dc_[MAX_COMPS_IN_SCAN] = {};
  uint64_t mcus_left_ = 0;
  bool gave_up_ = false;
};

}  // namespace mso
