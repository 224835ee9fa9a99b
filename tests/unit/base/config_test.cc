#include "base/config.h"

#include <gtest/gtest.h>
TEST(Config, Defaults) {
  mso::Config c;
  EXPECT_EQ(mso::config_from_json(mso::to_json(c), "x"), c);
  EXPECT_EQ(mso::parse_config(mso::to_yaml(c), "x").config, c);
}
