#include "io/jpeg.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <memory>
// jpeglib.h needs size_t and FILE declared before it.
#include <jerror.h>
#include <jpeglib.h>

#include "base/error.h"
#include "io/jpeg_huffman.h"

namespace mso {
namespace {

// A hostile progressive file can hold thousands of scans of a large picture; real ones have about ten.
constexpr int kMaxScans = 500;

struct ErrorState {
  jpeg_error_mgr manager;
  std::jmp_buf escape;
  char message[JMSG_LENGTH_MAX];
};

ErrorState* state_of(j_common_ptr cinfo) {
  return reinterpret_cast<ErrorState*>(cinfo->err);
}

[[noreturn]] void fail(j_common_ptr cinfo) {
  ErrorState* state = state_of(cinfo);
  (*cinfo->err->format_message)(cinfo, state->message);
  std::longjmp(state->escape, 1);
}

// Bytes left over before a marker are harmless where they are padding (some cameras fill up with one value),
// else the decoder lost its way in damaged data.
bool is_padding(j_decompress_ptr cinfo, int count) {
  const JOCTET* end = cinfo->src->next_input_byte;  // libjpeg has just read up to the marker
  if (count <= 2) return true;
  if (!cinfo->client_data || end - static_cast<const JOCTET*>(cinfo->client_data) < count) return false;
  return std::all_of(end - count, end, [end](JOCTET v) { return v == end[-1]; });
}

// level -1: a warning. Those which mean that pixels are missing or wrong end the decoding.
void on_message(j_common_ptr cinfo, int level) {
  if (level >= 0) return;
  switch (cinfo->err->msg_code) {
    case JWRN_ADOBE_XFORM:
    case JWRN_JFIF_MAJOR:
    case JWRN_BOGUS_PROGRESSION:
      return;
    case JWRN_EXTRANEOUS_DATA:
      if (cinfo->is_decompressor &&
          is_padding(reinterpret_cast<j_decompress_ptr>(cinfo), cinfo->err->msg_parm.i[0]))
        return;
      break;
  }
  fail(cinfo);
}

void ignore_output(j_common_ptr) {}

void watch_scans(j_common_ptr cinfo) {
  if (cinfo->is_decompressor && reinterpret_cast<j_decompress_ptr>(cinfo)->input_scan_number > kMaxScans) {
    cinfo->err->msg_code = JERR_BAD_PROGRESSION;
    fail(cinfo);
  }
}

void prepare(ErrorState* state) {
  jpeg_std_error(&state->manager);
  state->manager.error_exit = fail;
  state->manager.emit_message = on_message;
  state->manager.output_message = ignore_output;
  state->message[0] = '\0';
}

// What run_decoder() works on. No object with a destructor is made between setjmp and longjmp.
struct Decoding {
  std::span<const std::byte> bytes;
  const ImageHeader* header;
  int scale;
  JpegPart part;
  Image* out;  // rgb holds four components a pixel when `cmyk`
  JpegHuffman* huffman;  // null: libjpeg's own
  bool cmyk;
};

// These stand before setjmp in the frame that longjmp returns to, so their destructors run as usual.
struct Decompressor : jpeg_decompress_struct {
  Decompressor() : jpeg_decompress_struct{} {}
  ~Decompressor() { jpeg_destroy_decompress(this); }
};
struct Compressor : jpeg_compress_struct {
  Compressor() : jpeg_compress_struct{} {}
  ~Compressor() { jpeg_destroy_compress(this); }
};

// Decodes only `columns`, and what lies between them and the border of a block. Returns where the lines now begin.
JDIMENSION keep_columns(j_decompress_ptr cinfo, PixelRange columns) {
  // Smoothed chroma at the borders of what is decoded lacks its neighbours.
  constexpr int kBorder = 4;
  const JDIMENSION all = cinfo->output_width;
  JDIMENSION begin = static_cast<JDIMENSION>(std::max(0, columns.begin - kBorder));
  const JDIMENSION end = std::min(all, static_cast<JDIMENSION>(std::max(0, columns.end) + kBorder));
  if (end <= begin || end - begin == all) return 0;
  JDIMENSION width = end - begin;
  jpeg_crop_scanline(cinfo, &begin, &width);
  return begin;
}

// Lines begin … end − 1 at least, row y to base + stride · y. Of the others the coefficients are read, as damage is to be
// noticed wherever it is; the last one is decoded, for libjpeg reads no further when what is skipped ends the picture.
void read_lines(j_decompress_ptr cinfo, uint8_t* base, size_t stride, int begin, int end) {
  constexpr int kAtOnce = 8;
  constexpr int kBorder = 16;  // where skipping pays, and lines in between have their neighbours
  const int height = static_cast<int>(cinfo->output_height);
  if (begin > kBorder) jpeg_skip_scanlines(cinfo, static_cast<JDIMENSION>(begin - kBorder));
  while (cinfo->output_scanline < cinfo->output_height) {
    const int y = static_cast<int>(cinfo->output_scanline);
    if (y >= end && height - 1 - y > kBorder) {
      jpeg_skip_scanlines(cinfo, static_cast<JDIMENSION>(height - 1 - y));
      continue;
    }
    JSAMPROW lines[kAtOnce];
    for (int i = 0; i < kAtOnce; ++i) lines[i] = base + stride * static_cast<size_t>(std::min(y + i, height - 1));
    jpeg_read_scanlines(cinfo, lines, static_cast<JDIMENSION>(std::min(kAtOnce, height - y)));
  }
}

// noinline: locals changed after setjmp live in `d` and `cinfo`, not in registers.
__attribute__((noinline)) bool run_decoder(Decoding* d, ErrorState* state) {
  Decompressor cinfo;
  jpeg_progress_mgr progress{};
  progress.progress_monitor = watch_scans;
  cinfo.err = &state->manager;
  if (setjmp(state->escape)) return false;
  jpeg_create_decompress(&cinfo);
  cinfo.progress = &progress;
  cinfo.client_data = const_cast<std::byte*>(d->bytes.data());
  jpeg_mem_src(&cinfo, reinterpret_cast<unsigned char*>(const_cast<std::byte*>(d->bytes.data())),
               d->bytes.size());
  jpeg_read_header(&cinfo, TRUE);
  // The size was checked against the limit before; a file that shows two readers two sizes is refused.
  if (cinfo.image_width != static_cast<JDIMENSION>(d->header->width) ||
      cinfo.image_height != static_cast<JDIMENSION>(d->header->height)) {
    cinfo.err->msg_code = JERR_SOF_DUPLICATE;
    fail(reinterpret_cast<j_common_ptr>(&cinfo));
  }
  const bool four = cinfo.jpeg_color_space == JCS_CMYK || cinfo.jpeg_color_space == JCS_YCCK;
  cinfo.out_color_space = four ? JCS_CMYK : JCS_RGB;
  cinfo.scale_num = static_cast<unsigned>(d->scale);
  cinfo.scale_denom = 8;
  jpeg_calc_output_dimensions(&cinfo);
  d->cmyk = four;
  d->out->width = static_cast<int>(cinfo.output_width);
  d->out->height = static_cast<int>(cinfo.output_height);
  const size_t stride = size_t{cinfo.output_width} * (four ? 4 : 3);
  d->out->rgb.resize(stride * cinfo.output_height);
  jpeg_start_decompress(&cinfo);
  if (d->huffman) d->huffman->take_over(&cinfo);
  const JDIMENSION left = keep_columns(&cinfo, d->part.columns);
  uint8_t* base = d->out->rgb.data() + size_t{left} * (four ? 4 : 3);
  read_lines(&cinfo, base, stride, d->part.rows.begin, d->part.rows.end);
  jpeg_finish_decompress(&cinfo);  // reads up to EOI, so a file that lacks its end is noticed
  return true;
}

// As Pillow: a four-component JPEG holds inverted values (Adobe's convention), so `stored` is already
// 255 − ink.
void cmyk_to_rgb(const std::vector<uint8_t>& cmyk, std::vector<uint8_t>* rgb) {
  const size_t pixels = cmyk.size() / 4;
  rgb->resize(pixels * 3);
  for (size_t i = 0; i < pixels; ++i) {
    const unsigned light = cmyk[4 * i + 3];
    for (size_t c = 0; c < 3; ++c) {
      const unsigned product = (255u - cmyk[4 * i + c]) * light + 128;
      (*rgb)[3 * i + c] = static_cast<uint8_t>(light - ((product + (product >> 8)) >> 8));
    }
  }
}

struct Encoding {
  const Image* image;
  int quality;
  unsigned char* buffer;
  unsigned long size;
};

__attribute__((noinline)) bool run_encoder(Encoding* e, ErrorState* state) {
  Compressor cinfo;
  cinfo.err = &state->manager;
  if (setjmp(state->escape)) return false;
  jpeg_create_compress(&cinfo);
  jpeg_mem_dest(&cinfo, &e->buffer, &e->size);
  cinfo.image_width = static_cast<JDIMENSION>(e->image->width);
  cinfo.image_height = static_cast<JDIMENSION>(e->image->height);
  cinfo.input_components = 3;
  cinfo.in_color_space = JCS_RGB;
  jpeg_set_defaults(&cinfo);
  jpeg_set_quality(&cinfo, e->quality, TRUE);
  cinfo.optimize_coding = TRUE;
  jpeg_start_compress(&cinfo, TRUE);
  const size_t stride = size_t{cinfo.image_width} * 3;
  while (cinfo.next_scanline < cinfo.image_height) {
    JSAMPROW row = const_cast<uint8_t*>(e->image->rgb.data()) + stride * cinfo.next_scanline;
    jpeg_write_scanlines(&cinfo, &row, 1);
  }
  jpeg_finish_compress(&cinfo);
  return true;
}

}  // namespace

int jpeg_scale(int width, int height, int target_width, int target_height) {
  if (target_width <= 0 || target_height <= 0) return 8;
  for (const int scale : {1, 2, 4})
    if (jpeg_scaled(width, scale) >= target_width && jpeg_scaled(height, scale) >= target_height)
      return scale;
  return 8;
}

void decode_jpeg(std::span<const std::byte> bytes, const ImageHeader& header, const std::string& name,
                 int scale, const JpegPart& part, Image* out, bool libjpeg_alone) {
  ErrorState state;
  prepare(&state);
  thread_local const auto huffman = std::make_unique<JpegHuffman>();
  Decoding decoding{bytes, &header, scale, part, out, libjpeg_alone ? nullptr : huffman.get(), false};
  bool whole = run_decoder(&decoding, &state);
  if (!whole && huffman->gave_up()) {
    decoding.huffman = nullptr;
    whole = run_decoder(&decoding, &state);
  }
  if (!whole)
    throw Error(std::string("JPEG picture is damaged (") + state.message + ")", name,
                "copy it again or delete it", ExitCode::kBadData);
  if (decoding.cmyk) {
    std::vector<uint8_t> cmyk;
    cmyk.swap(out->rgb);
    cmyk_to_rgb(cmyk, &out->rgb);
  }
}

std::vector<std::byte> encode_jpeg(const Image& image, int quality) {
  if (image.width <= 0 || image.height <= 0 || image.rgb.size() != size_t(image.width) * image.height * 3)
    throw Error("cannot write an empty picture as JPEG",
                std::to_string(image.width) + "×" + std::to_string(image.height));
  if (image.width > JPEG_MAX_DIMENSION || image.height > JPEG_MAX_DIMENSION)
    throw Error("picture is too large for JPEG (65500 pixels a side)",
                std::to_string(image.width) + "×" + std::to_string(image.height));
  ErrorState state;
  prepare(&state);
  Encoding encoding{&image, quality, nullptr, 0};
  const bool ok = run_encoder(&encoding, &state);
  std::vector<std::byte> bytes;
  if (ok)
    bytes.assign(reinterpret_cast<std::byte*>(encoding.buffer),
                 reinterpret_cast<std::byte*>(encoding.buffer) + encoding.size);
  std::free(encoding.buffer);
  if (!ok)
    throw Error(std::string("cannot write JPEG (") + state.message + ")",
                std::to_string(image.width) + "×" + std::to_string(image.height) + " pixels");
  return bytes;
}

}  // namespace mso
