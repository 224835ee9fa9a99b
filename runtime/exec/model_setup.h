// What the configuration says about model, tokenizer and image processor, as the parts that build them want it. Used
// by training and by exports; no torch.
#pragma once

#include <memory>

#include "base/config.h"
#include "io/image_processor.h"
#include "io/tokenizer.h"
#include "model/model_options.h"

namespace mso {

ModelOptions model_options(const Config& config);
// model.tokenizer; "auto": of the model's folder, from scratch the byte tokenizer.
std::shared_ptr<const Tokenizer> make_tokenizer(const Config& config);
// The model folder's own, else CLIP's for the size of the vision tower. Error (kBadUsage) where its pictures have
// another size than the vision tower reads.
ImageProcessorConfig image_processor_config(const Config& config, const LlavaConfig& model);

}  // namespace mso
