// Writing that must not destroy what another program wrote, and folders that appear as a whole or not at all.
#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>

#include "base/error.h"
#include "base/partial_folder.h"
#include "base/shell.h"

namespace mso {
namespace {

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/mso-file-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path put(const std::string& name, const std::string& text) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  fs::path folder_;
};

template <typename Work>
Error error_of(Work work) {
  try {
    work();
  } catch (const Error& e) {
    return e;
  }
  return Error("no error", "");
}

TEST_F(FileTest, OnlyOwnFilesMayBeReplaced) {
  auto refused = [&](const fs::path& path) {
    const Error e = error_of([&] { check_may_replace(path, "mark of ours", "one of ours"); });
    return e.exit_code() == ExitCode::kBadUsage && e.on().find(path.string()) != std::string::npos;
  };
  EXPECT_FALSE(refused(folder_ / "nothing"));
  EXPECT_FALSE(refused(put("empty", "")));
  EXPECT_FALSE(refused(put("ours", "<html> mark of ours </html>")));
  EXPECT_TRUE(refused(put("thesis.txt", "precious")));
  EXPECT_TRUE(refused(put("late", std::string(5000, ' ') + "mark of ours")));
  EXPECT_TRUE(refused(folder_));
  EXPECT_TRUE(refused("/dev/null"));  // a rename would put a file in its place
  fs::create_symlink(folder_ / "thesis.txt", folder_ / "link");
  EXPECT_TRUE(refused(folder_ / "link"));
}

TEST_F(FileTest, TroubleNamesThePathAndWhatToDo) {
  put("file", "x");
  const Error e = error_of([&] { make_folders(folder_ / "file/below"); });
  EXPECT_NE(e.on().find((folder_ / "file/below").string()), std::string::npos) << e.what();
  EXPECT_NE(system_error("cannot write", "/x", ENOSPC).hint().find("full"), std::string::npos);
  EXPECT_NE(system_error("cannot write", "/x", EDQUOT).hint().find("quota"), std::string::npos);
  EXPECT_NE(system_error("cannot write", "/x", EROFS).hint().find("read-only"), std::string::npos);
  EXPECT_EQ(system_error("cannot write", "/x", ENOSPC, "mine").hint(), "mine");
}

bool ours(const std::string& name) { return name.starts_with("part-"); }

TEST_F(FileTest, PartialFolderAppearsWhole) {
  {
    PartialFolder partial(folder_ / "out/", ours);  // the slash does not matter
    EXPECT_EQ(partial.path(), folder_ / "out.partial");
    write_file_durably(partial.path() / "part-1", "x");
    EXPECT_THROW(PartialFolder(folder_ / "out", ours), Error);  // one writer at a time
    EXPECT_FALSE(fs::exists(folder_ / "out"));
    partial.publish();
  }
  EXPECT_EQ(read_file(folder_ / "out/part-1"), "x");
  EXPECT_FALSE(fs::exists(folder_ / "out.partial"));
}

TEST_F(FileTest, PartialFolderIsGoneAfterAnErrorAndTakesUpAfterAKill) {
  try {
    PartialFolder partial(folder_ / "out", ours);
    write_file_durably(partial.path() / "part-1", "x");
    throw std::runtime_error("disk full");
  } catch (const std::runtime_error&) {
  }
  EXPECT_TRUE(fs::is_empty(folder_));
  put("out.partial/part-1", "of a killed one");
  {
    PartialFolder partial(folder_ / "out", ours);
    EXPECT_TRUE(fs::is_empty(partial.path()));
    partial.publish();
  }
  put("other.partial/thesis.txt", "precious");
  EXPECT_EQ(error_of([&] { PartialFolder(folder_ / "other", ours); }).exit_code(), ExitCode::kBadUsage);
  EXPECT_EQ(read_file(folder_ / "other.partial/thesis.txt"), "precious");
}

TEST_F(FileTest, DurableWriteLeavesTheOldFileWhereTheNewDoesNotFit) {
  const fs::path path = put("file", "old");
  auto write_with_limit = [&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{10, 10};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_file_durably(path, std::string(1000, 'x'));
      std::_Exit(1);
    } catch (const Error& e) {
      std::_Exit(e.on().find(path.string()) != std::string::npos ? 0 : 2);
    }
  };
  EXPECT_EXIT(write_with_limit(), testing::ExitedWithCode(0), "");
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

// What sh itself makes of the word.
TEST(ShellWord, IsOneWordForTheShell) {
  EXPECT_EQ(shell_word("runs/demo-1"), "runs/demo-1");
  for (const std::string text : {"", "a b", "it's", "$HOME", "a\"b", "*", "a\nb", "~", "ü"}) {
    FILE* shell = ::popen(("printf '%s|' " + shell_word(text)).c_str(), "r");
    ASSERT_NE(shell, nullptr);
    char buffer[100];
    const size_t n = ::fread(buffer, 1, sizeof buffer, shell);
    ::pclose(shell);
    EXPECT_EQ(std::string(buffer, n), text + "|");
  }
}

}  // namespace
}  // namespace mso
