// What the configuration says about model, tokenizer and image processor, as the parts that build them want it. Used
// by training and by exports; no torch.
#pragma once

#include <memory>
#include <optional>

#include "base/config.h"
#include "io/chat_template.h"
#include "io/image_processor.h"
#include "io/sample_assembler.h"
#include "io/sequence_alignment.h"
#include "io/tokenizer.h"
#include "model/model_options.h"

namespace mso {

// model.image_token_index "auto": of the model's config.json, else the tokenizer's token "<image>"; so with "<video>" and
// "<audio>" for a model that has these.
ModelOptions model_options(const Config& config, const Tokenizer& tokenizer);
// model.tokenizer; "auto": of the model's folder, from scratch the byte tokenizer.
std::shared_ptr<const Tokenizer> make_tokenizer(const Config& config);
// The model folder's own, else CLIP's for the size of the vision tower. Error (kBadUsage) where its pictures have
// another size than the vision tower reads.
ImageProcessorConfig image_processor_config(const Config& config, const LlavaConfig& model);

// data.chat_template; "auto": of the model's folder, else of the tokenizer's, else of its tokenizer_config.json. `placeholders`:
// how the template writes media. Nothing, and why in *missing, where "auto" finds none or one that cannot be used. Error
// (kBadUsage) naming the key for anything else that cannot be used.
std::optional<ChatTemplate> chat_template(const Config& config, const Tokenizer& tokenizer,
                                          const MediaPlaceholders& placeholders, std::string* missing);
// What the exported folder of a model has beside weights, tokenizer and image processor, as JSON, for a snapshot's record:
// "chat_templates": sources by name, as "default" the one training writes conversations with, where it has one; the others, and
// "generation_config" (generation_config.json), of the model's or the tokenizer's folder.
std::string model_files(const Config& config, const Tokenizer& tokenizer, const ConversationEncoder* conversations);
// data.alignment.MODALITY. Error (kBadUsage) naming the key for what cannot be in force with this model.
std::optional<AlignmentRule> alignment_rule(const Config& config, const LlavaConfig& model, const std::string& modality);

struct ModelInputs {
  std::shared_ptr<const Tokenizer> tokenizer;
  ModelOptions options;
  LlavaConfig model;
  ImageProcessorConfig processor;
  AssemblerOptions samples;
  PerModality<MediaDecoder> media;  // video and audio, where the model takes them
};
// All of the above, fitting together: what `mso train` refuses about model, tokenizer and template is refused here, for
// `mso plan` too. Reads files, no weights and no data.
ModelInputs check_model_inputs(const Config& config);

}  // namespace mso
