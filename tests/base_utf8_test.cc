#include <doctest/doctest.h>

#include <string>

#include "lopt/base/utf8.h"

namespace lopt {
namespace {

TEST_CASE("Text from elsewhere is shown as it is, but for what would not be seen as such") {
  CHECK_EQ(PlainText("the host f\xC3\xBCnf, \xE4\xBA\x94"), "the host f\xC3\xBCnf, \xE4\xBA\x94");
  CHECK_EQ(PlainText("a\x1b[31m\r\n\t\x7f"), R"(a\x1b[31m\x0d\x0a\x09\x7f)");
  CHECK_EQ(PlainText("\xff\xC3"), R"(\xff\xc3)");
  CHECK_EQ(PlainText("\xD8\x9C\xE1\xA0\x8E\xEF\xBF\xB9"),  // U+061C, U+180E, U+FFF9
           R"(\xd8\x9c\xe1\xa0\x8e\xef\xbf\xb9)");
  CHECK_EQ(PlainText("\xC0\x80\xED\xA0\x80"), R"(\xc0\x80\xed\xa0\x80)");  // not well-formed
  CHECK_EQ(PlainText("\xC2\x9B"
                     "31m"),
           R"(\xc2\x9b31m)");  // the control character CSI
  CHECK_EQ(PlainText("\xE2\x80\xAE"
                     "abc"),
           R"(\xe2\x80\xaeabc)");  // from right to left
  CHECK_EQ(PlainText(std::string("a\0b", 3)), R"(a\x00b)");
}

TEST_CASE("Text that is too long is cut between two characters, and says how long it was") {
  CHECK_EQ(PlainLines("a\x1b[31m\n\nb"), "a\\x1b[31m\n\nb");
  CHECK_EQ(PlainLines("a\n"), "a\n");
  CHECK(HasPlainLines("a\n\nb\n"));
  CHECK_FALSE(HasPlainLines("a\nb\r\n"));
  CHECK_EQ(PlainText("abcd", 4), "abcd");
  CHECK_EQ(PlainText("abcde", 4), "abcd... (5 bytes)");
  CHECK_EQ(PlainText("ab\xC3\xBC", 3), "ab... (4 bytes)");
  CHECK_EQ(PlainText("a\x1bz", 4), "a... (3 bytes)");
}

TEST_CASE("Text has the width of a terminal's columns, and is cut between characters") {
  CHECK_EQ(TextWidth("abc"), 3);
  CHECK_EQ(TextWidth("gr\xC3\xB6\xC3\x9F"
                     "e"),
           5);
  CHECK_EQ(TextWidth("\xE6\x95\xB0\xF0\x9F\x8E\x89"), 4);  // a Chinese sign, a pictograph
  CHECK_EQ(TextWidth("a\xff"), 2);
  CHECK_EQ(FirstColumns("abc", 2), "ab");
  CHECK_EQ(FirstColumns("abc", 5), "abc");
  CHECK_EQ(FirstColumns("a\xE6\x95\xB0", 2), "a");
  CHECK_EQ(FirstColumns("a\xE6\x95\xB0", 3), "a\xE6\x95\xB0");
  CHECK_EQ(FirstColumns("\xC3\xB6\xff", 2), "\xC3\xB6\xff");
}

TEST_CASE("Plain text is UTF-8 without control characters") {
  CHECK(IsPlainText(""));
  CHECK(IsPlainText("loss_at, \xE4\xBA\x94"));
  CHECK_FALSE(IsPlainText("a\xff"));
  CHECK_FALSE(IsPlainText("a\n"));
}

}  // namespace
}  // namespace lopt
