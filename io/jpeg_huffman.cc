#include "io/jpeg_huffman.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <jerror.h>

// Bits are read from registers, not through memory: three times as fast.
#define MSO_INLINE inline __attribute__((always_inline))
#if defined(__x86_64__) && defined(__GNUC__)
#define MSO_JPEG_BMI2 1
#endif

namespace mso {
namespace {

constexpr int kBlock = DCTSIZE2;
constexpr int kWholeBlock = 64;  // "how many to go on" of an end of block
constexpr int kLongestRun = 16;  // the same of others
// The longest MCU: ten blocks of 64 codes of 16 bits with 15 bits of value; reading ahead takes eight bytes more.
constexpr size_t kPadding = size_t{D_MAX_BLOCKS_IN_MCU} * kBlock * 31 / 8 + 16;
constexpr int kLargestDc = 1 << 24;  // of 8-bit pictures they stay below 2^11

// From the order in the file to that of libjpeg's blocks, by one more than the index. Going on behind the end of a block
// writes its last coefficient: an end of block a zero that is there already, a run that is too long as libjpeg does.
constexpr auto kNaturalOrder = [] {
  struct {
    uint8_t at[kBlock + kLongestRun + kWholeBlock];
  } order{};
  int x = 0, y = 0;
  for (int i = 0; i < kBlock; ++i) {
    order.at[1 + i] = static_cast<uint8_t>(8 * y + x);
    const bool up = (x + y) % 2 == 0;
    if (up && x == 7) ++y;
    else if (up && y == 0) ++x;
    else if (up) ++x, --y;
    else if (y == 7) ++x;
    else if (x == 0) ++y;
    else --x, ++y;
  }
  for (int i = 1 + kBlock; i < kBlock + kLongestRun + kWholeBlock; ++i) order.at[i] = kBlock - 1;
  return order;
}();

// The value that `size` bits stand for (ITU-T T.81, F.2.2.1, EXTEND).
int extended(int bits, int size) {
  return size == 0 || bits >> (size - 1) ? bits : bits - (1 << size) + 1;
}

uint64_t big_endian(const uint8_t* from) {
  uint64_t value;
  std::memcpy(&value, from, sizeof value);
  return std::endian::native == std::endian::little ? __builtin_bswap64(value) : value;
}

// An entry of Table::look in one register: what the next kLookBits bits begin with, one symbol with its value, or two.
// Bits 0–7: length of all, 0 where not even one fits in; 8–15: of the first; 16–23: how many coefficients to go on to the
// first one's; 24–31: and to the last one's; 32–47 and 48–63: their values, the same where there is one.
constexpr uint64_t entry(int length, int first_length, int first_steps, int steps, int first, int last) {
  return static_cast<uint64_t>(length) | static_cast<uint64_t>(first_length) << 8 |
         static_cast<uint64_t>(first_steps) << 16 | static_cast<uint64_t>(steps) << 24 |
         static_cast<uint64_t>(static_cast<uint16_t>(first)) << 32 |
         static_cast<uint64_t>(static_cast<uint16_t>(last)) << 48;
}
MSO_INLINE int length_of(uint64_t entry) { return static_cast<int>(entry & 0xFF); }
MSO_INLINE int first_length_of(uint64_t entry) { return static_cast<int>(entry >> 8 & 0xFF); }
MSO_INLINE int first_steps_of(uint64_t entry) { return static_cast<int>(entry >> 16 & 0xFF); }
MSO_INLINE int steps_of(uint64_t entry) { return static_cast<int>(entry >> 24 & 0xFF); }
MSO_INLINE int first_of(uint64_t entry) { return static_cast<int16_t>(entry >> 32); }
MSO_INLINE int last_of(uint64_t entry) { return static_cast<int16_t>(entry >> 48); }

// How many coefficients a symbol of the AC table goes on, its own included.
int steps_of_symbol(int symbol) {
  const int run = symbol >> 4, size = symbol & 15;
  return size == 0 && run != 15 ? kWholeBlock : run + 1;
}

}  // namespace

bool JpegHuffman::Table::is_of(const JHUFF_TBL& from) const {
  return std::memcmp(bits, from.bits, sizeof bits) == 0 && std::memcmp(symbols, from.huffval, sizeof symbols) == 0;
}

// Codes are given out in order of their length (T.81, annex C). libjpeg has refused impossible tables before.
void JpegHuffman::Table::build(const JHUFF_TBL& from, bool dc) {
  std::memcpy(bits, from.bits, sizeof bits);
  std::memcpy(symbols, from.huffval, sizeof symbols);
  std::fill(std::begin(look), std::end(look), 0);
  uint32_t code = 0;  // aligned to 16 bits
  int index = 0;
  for (int length = 1; length <= 16; ++length) {
    offset[length] = index - static_cast<int>(code >> (16 - length));
    for (int i = 0; i < bits[length] && index < 256; ++i, ++index, code += 1u << (16 - length)) {
      const int size = symbols[index] & 15, all = length + size, steps = dc ? 1 : steps_of_symbol(symbols[index]);
      if (all > kLookBits || code >= 1u << 16) continue;
      const int rest = kLookBits - all;
      for (int v = 0; v < 1 << size; ++v) {
        const int value = extended(v, size);
        std::fill_n(look + (code >> (16 - kLookBits)) + (static_cast<uint32_t>(v) << rest), size_t{1} << rest,
                    entry(all, all, steps, steps, value, value));
      }
    }
    limit[length] = code;
  }
  if (dc) return;  // what follows is of another table
  uint64_t one[1 << kLookBits];
  std::copy(std::begin(look), std::end(look), one);
  for (uint32_t i = 0; i < 1 << kLookBits; ++i) {
    const uint64_t first = one[i];
    if (length_of(first) == 0 || steps_of(first) == kWholeBlock) continue;
    const uint64_t next = one[i << length_of(first) & ((1 << kLookBits) - 1)];
    if (length_of(next) == 0 || length_of(first) + length_of(next) > kLookBits) continue;
    look[i] = entry(length_of(first) + length_of(next), length_of(first), steps_of(first),
                    steps_of(first) + steps_of(next), first_of(first), last_of(next));
  }
}

bool JpegHuffman::collect(const JOCTET* from, const JOCTET* end) {
  bytes_.resize(static_cast<size_t>(end - from) + kPadding);
  uint8_t* to = bytes_.data();
  for (;;) {
    const auto* stop = static_cast<const JOCTET*>(std::memchr(from, 0xFF, static_cast<size_t>(end - from)));
    if (!stop || end - stop < 2) return false;
    to = std::copy(from, stop, to);
    if (stop[1] != 0) {
      if (stop[1] == 0xFF) return false;  // bytes that fill up before a marker, or lead nowhere
      marker_ = stop;
      break;
    }
    *to++ = 0xFF;
    from = stop + 2;
  }
  size_ = static_cast<size_t>(to - bytes_.data());
  std::memset(to, 0, kPadding);
  return true;
}

bool JpegHuffman::take_over(j_decompress_ptr cinfo) {
  gave_up_ = false;
#if JPEG_LIB_VERSION != 62 || !defined(LIBJPEG_TURBO_VERSION_NUMBER) || LIBJPEG_TURBO_VERSION_NUMBER < 2000000 || \
    LIBJPEG_TURBO_VERSION_NUMBER >= 3000000
  return false;
#endif
  if (cinfo->progressive_mode || cinfo->arith_code || cinfo->restart_interval != 0 || cinfo->data_precision != 8 ||
      jpeg_has_multiple_scans(cinfo) || cinfo->comps_in_scan < 1 || cinfo->comps_in_scan > MAX_COMPS_IN_SCAN ||
      cinfo->blocks_in_MCU < 1 || cinfo->blocks_in_MCU > D_MAX_BLOCKS_IN_MCU)
    return false;
  for (int c = 0; c < cinfo->comps_in_scan; ++c) {
    const jpeg_component_info& component = *cinfo->cur_comp_info[c];
    const int numbers[2] = {component.dc_tbl_no, component.ac_tbl_no};
    for (const bool dc : {true, false}) {
      const int n = numbers[dc ? 0 : 1];
      if (n < 0 || n >= NUM_HUFF_TBLS) return false;
      const JHUFF_TBL* from = (dc ? cinfo->dc_huff_tbl_ptrs : cinfo->ac_huff_tbl_ptrs)[n];
      if (!from) return false;
      Table& table = (dc ? dc_ : ac_)[n];
      bool& built = built_[dc][n];
      if (!built || !table.is_of(*from)) table.build(*from, dc);
      built = true;
    }
  }
  const JOCTET* begin = cinfo->src->next_input_byte;
  if (!collect(begin, begin + cinfo->src->bytes_in_buffer)) return false;
  bits_ = {0, 0, bytes_.data()};
  std::fill(std::begin(last_dc_), std::end(last_dc_), 0);
  mcus_left_ = uint64_t{cinfo->MCUs_per_row} * cinfo->MCU_rows_in_scan;
  entropy_.start_pass = [](j_decompress_ptr c) { give_up(c); };
  entropy_.decode_mcu = decode_mcu_plain;
#ifdef MSO_JPEG_BMI2
  if (__builtin_cpu_supports("bmi2")) entropy_.decode_mcu = decode_mcu_bmi2;
#endif
  entropy_.insufficient_data = FALSE;
  entropy_.self = this;
  cinfo->entropy = reinterpret_cast<jpeg_entropy_decoder*>(&entropy_);
  return true;
}

void JpegHuffman::give_up(j_decompress_ptr cinfo) {
  reinterpret_cast<Entropy*>(cinfo->entropy)->self->gave_up_ = true;
  cinfo->err->msg_code = JERR_BAD_STATE;
  (*cinfo->err->error_exit)(reinterpret_cast<j_common_ptr>(cinfo));
  __builtin_unreachable();
}

namespace {

// 56 bits at least from here on.
template <typename Bits>
MSO_INLINE void refill(Bits* bits) {
  bits->next |= big_endian(bits->from) >> bits->count;
  bits->from += (63 - bits->count) >> 3;
  bits->count |= 56;
}

template <typename Bits>
MSO_INLINE void skip(Bits* bits, int n) {
  bits->next <<= n;
  bits->count -= n;
}

// At most 16 of them.
template <typename Bits>
MSO_INLINE int take(Bits* bits, int n) {
  const int value = static_cast<int>(bits->next >> 32 >> (32 - n));
  skip(bits, n);
  return value;
}

}  // namespace

// Not on Bits, which must stay in registers. 0: no such code.
uint32_t JpegHuffman::long_symbol(const Table& table, uint64_t next) {
  const uint32_t code = static_cast<uint32_t>(next >> 48);
  int length = 1;
  while (length <= 16 && code >= table.limit[length]) ++length;
  if (length > 16) return 0;
  const int index = table.offset[length] + static_cast<int>(code >> (16 - length));
  return static_cast<uint32_t>(length) | uint32_t{table.symbols[index & 255]} << 8;
}

MSO_INLINE bool JpegHuffman::decode_dc(const Table& table, Bits* bits, int* difference) {
  refill(bits);
  if (const uint64_t found = table.look[bits->next >> (64 - kLookBits)]; length_of(found) != 0) [[likely]] {
    skip(bits, length_of(found));
    *difference = last_of(found);
    return true;
  }
  const uint32_t symbol_found = long_symbol(table, bits->next);
  const int size = static_cast<int>(symbol_found >> 8);
  if (symbol_found == 0 || size > 15) return false;
  skip(bits, static_cast<int>(symbol_found & 255));
  *difference = extended(take(bits, size), size);
  return true;
}

MSO_INLINE bool JpegHuffman::decode_ac(const Table& table, Bits* bits, JCOEF* block) {
  int k = 1;  // the next coefficient in the order of the file
  for (;;) {
    if (bits->count < 31) refill(bits);
    const uint64_t found = table.look[bits->next >> (64 - kLookBits)];
    if (length_of(found) != 0) [[likely]] {
      const int first = k + first_steps_of(found);
      k += steps_of(found);
      // In this order: of a block that is full the first is the last coefficient, and the second is of another block.
      block[kNaturalOrder.at[k]] = static_cast<JCOEF>(last_of(found));
      block[kNaturalOrder.at[first]] = static_cast<JCOEF>(first_of(found));
      if (k >= kBlock) {
        skip(bits, first < kBlock ? length_of(found) : first_length_of(found));
        return true;
      }
      skip(bits, length_of(found));
      continue;
    }
    const uint32_t symbol_found = long_symbol(table, bits->next);
    if (symbol_found == 0) return false;
    const int symbol = static_cast<int>(symbol_found >> 8), size = symbol & 15;
    skip(bits, static_cast<int>(symbol_found & 255));
    k += steps_of_symbol(symbol);
    block[kNaturalOrder.at[k]] = static_cast<JCOEF>(extended(take(bits, size), size));
    if (k >= kBlock) return true;
  }
}

MSO_INLINE boolean JpegHuffman::decode_mcu(j_decompress_ptr cinfo, JBLOCKROW* blocks) {
  JpegHuffman& self = *reinterpret_cast<Entropy*>(cinfo->entropy)->self;
  if (self.mcus_left_ == 0) give_up(cinfo);
  Bits bits = self.bits_;
  JBLOCK unwanted;
  for (int b = 0; b < cinfo->blocks_in_MCU; ++b) {
    const int c = cinfo->MCU_membership[b];
    const jpeg_component_info& component = *cinfo->cur_comp_info[c];
    // Lines that are left out are decoded without a place for them.
    JCOEF* block = blocks ? *blocks[b] : unwanted;
    int difference = 0;
    if (!decode_dc(self.dc_[component.dc_tbl_no], &bits, &difference)) give_up(cinfo);
    self.last_dc_[c] += difference;
    if (self.last_dc_[c] > kLargestDc || self.last_dc_[c] < -kLargestDc) give_up(cinfo);
    block[0] = static_cast<JCOEF>(self.last_dc_[c]);
    if (!decode_ac(self.ac_[component.ac_tbl_no], &bits, block)) give_up(cinfo);
  }
  const size_t used = static_cast<size_t>(bits.from - self.bytes_.data()) * 8 - static_cast<size_t>(bits.count);
  if (used > self.size_ * 8) give_up(cinfo);
  self.bits_ = bits;
  if (--self.mcus_left_ > 0) return TRUE;
  if ((used + 7) / 8 != self.size_) give_up(cinfo);
  const JOCTET* end = cinfo->src->next_input_byte + cinfo->src->bytes_in_buffer;
  cinfo->src->next_input_byte = self.marker_;
  cinfo->src->bytes_in_buffer = static_cast<size_t>(end - self.marker_);
  return TRUE;
}

boolean JpegHuffman::decode_mcu_plain(j_decompress_ptr cinfo, JBLOCKROW* blocks) {
  return decode_mcu(cinfo, blocks);
}
#ifdef MSO_JPEG_BMI2
// Shifts by a count that is not a constant are three instructions without BMI2.
__attribute__((target("bmi2"))) boolean JpegHuffman::decode_mcu_bmi2(j_decompress_ptr cinfo, JBLOCKROW* blocks) {
  return decode_mcu(cinfo, blocks);
}
#endif

}  // namespace mso
