#include "cmd/checked_model.h"

#include <config.h>

#include <nlohmann/json.hpp>

#include "base/model_config.h"
#ifdef MSO_HAVE_IO
#include "exec/model_setup.h"
#endif

namespace mso {

nlohmann::json checked_model(const Config& config) {
#ifdef MSO_HAVE_IO
  return nlohmann::json::parse(check_model_inputs(config).options.config_json);
#else
  return hugging_face_config(config.model);
#endif
}

}  // namespace mso
