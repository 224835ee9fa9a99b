// Names of LLaVA parameters. One logical name (the hub's, which transformers 4.57 and 5 both load) for the
// spellings found in files and in memory.
#pragma once

#include <string>

namespace mso {

// The hub's spelling of any of: "vision_tower.embeddings…" (files of transformers 5), "model.vision_tower…",
// "model.language_model…", "lm_head…" (modules of transformers 5), "vision_tower.vision_model…",
// "language_model.model…" (hub). A name of none of these forms is returned as it is.
std::string logical_name(const std::string& name);

// Buffers some files carry and no model needs ("position_ids", "rotary_emb.inv_freq").
bool is_ignorable_name(const std::string& name);

}  // namespace mso
