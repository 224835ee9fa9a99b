// A CLIP model's folder as an Embedder for the index: model, image processor and tokenizer together.
#pragma once

#include <memory>
#include <string>

#include "io/embedder.h"

namespace mso {

// Error (kBadUsage) naming what the folder lacks.
std::unique_ptr<Embedder> make_clip_adapter(const std::string& folder);

}  // namespace mso
