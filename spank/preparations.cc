#include "spank/preparation.h"

namespace mso {

std::vector<std::unique_ptr<Preparation>> make_preparations() {
  std::vector<std::unique_ptr<Preparation>> preparations;
  preparations.push_back(make_snapshot_preparation());
  return preparations;
}

}  // namespace mso
