#include "base/safetensors.h"
#include <gtest/gtest.h>
