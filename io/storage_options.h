// From the configuration (mdp.*) to the options of the storage.
#pragma once

#include "base/config.h"
#include "io/storage.h"

namespace mso {

// Error (kBadUsage) naming the key for values that are no texts, unknown modalities, nvme:// names that are not configured
// and places that are no NVMe drive. Looks at mount points, never at data.
StorageOptions storage_options(const Config& config);

}  // namespace mso
