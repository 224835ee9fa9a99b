// Communicator over MPI point-to-point messages in CPU memory. Included by runtime/comm/*.cc alone (MPI
// header).
#pragma once

#include <mpi.h>

#include <memory>
#include <string>

#include "comm/communicator.h"

namespace mso {

// A group of the ranks of `parent`, with contexts of its own; collective over `parent`.
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm parent, const std::string& name);

}  // namespace mso
