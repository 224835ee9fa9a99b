// Joins the picture decoder and the family's image processor into what the assembler calls for each picture.
#pragma once

#include "io/image_processor.h"
#include "io/sample_media.h"

namespace mso {

// `tokens`: positions of one picture in the text, (image_size / patch_size)² for LLaVA's feature strategy "default",
// one more for "full". `exact_jpeg` (data.exact_jpeg): JPEGs are always decoded at full size. Error (kBadUsage) for a
// processor whose pictures vary in size.
PictureDecoder make_picture_decoder(const ImageProcessorConfig& config, int64_t tokens, bool exact_jpeg = false);

}  // namespace mso
