// Asks a drive itself for its namespaces. The kernel shows no block device, and no identifiers, for a namespace whose
// identifiers another one has already: those duplicates can be named only this way.
#pragma once

#include <string>
#include <vector>

#include "node/node_facts.h"

namespace mso {

// Active namespaces of controller `name` ("nvme0"), by Identify commands; their name is "nvme0 namespace 1". Empty where the
// device cannot be opened (only root may) or does not answer.
std::vector<NvmeNamespace> identify_namespaces(const std::string& name);

// Pure: UUID, NGUID, EUI64 of a namespace identification descriptor list (NVMe base specification, Identify CNS 03h), in
// the form sysfs has. `size` bytes are looked at, never more.
void read_identifiers(const unsigned char* list, size_t size, NvmeNamespace* ns);

}  // namespace mso
