#include "lopt/base/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>

namespace lopt {
namespace {

// The character that a sequence of this length stands for.
uint32_t CodePoint(std::string_view sequence) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(sequence[i]); };
  if (sequence.size() == 1) return byte(0);
  uint32_t code = byte(0) & (0x7FU >> sequence.size());
  for (size_t i = 1; i < sequence.size(); ++i) code = code << 6 | (byte(i) & 0x3FU);
  return code;
}

struct CodeRange {
  uint32_t first;
  uint32_t last;
};

bool IsIn(std::span<const CodeRange> ranges, uint32_t code) {
  return std::ranges::any_of(
      ranges, [code](const CodeRange& r) { return code >= r.first && code <= r.last; });
}

// What is not seen, or changes how what follows is.
constexpr CodeRange kNotPlain[] = {{0, 0x1F},        {0x7F, 0x9F},      {0xAD, 0xAD},
                                   {0x61C, 0x61C},   {0x180E, 0x180E},  {0x200B, 0x200F},
                                   {0x2028, 0x202E}, {0x2060, 0x206F},  {0xFEFF, 0xFEFF},
                                   {0xFFF9, 0xFFFB}, {0xE0000, 0xE0FFF}};

// Wide and full-width by Unicode's East_Asian_Width.
constexpr CodeRange kWide[] = {{0x1100, 0x115F},   {0x2E80, 0xA4CF},   {0xAC00, 0xD7A3},
                               {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},
                               {0xFFE0, 0xFFE6},   {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF},
                               {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};

bool ShowsAsItIs(uint32_t code) { return !IsIn(kNotPlain, code); }

// Takes the first character, or a byte that is none, off a text that is not empty. Returns the
// columns that it takes.
size_t DropCharacter(std::string_view* text) {
  const size_t length = Utf8Length(*text);
  const size_t columns = length == 0 ? 1 : IsIn(kWide, CodePoint(text->substr(0, length))) ? 2 : 1;
  text->remove_prefix(std::max<size_t>(length, 1));
  return columns;
}

// Bytes of the plain character that `text` begins with; 0 if there is none.
size_t PlainLength(std::string_view text) {
  const size_t length = Utf8Length(text);
  return length > 0 && ShowsAsItIs(CodePoint(text.substr(0, length))) ? length : 0;
}

// The bytes of the character that a text begins with; 0 if it begins with none.
using LengthOf = size_t(std::string_view text);

bool Consists(std::string_view text, LengthOf* length_of) {
  while (!text.empty()) {
    const size_t length = length_of(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

// Takes the first character off a text that is not empty, or the first byte, as \xff, where there
// is no character.
std::string TakeCharacter(std::string_view* text, LengthOf* length_of) {
  const size_t length = length_of(*text);
  std::string taken = length > 0
                          ? std::string(text->substr(0, length))
                          : fmt::format("\\x{:02x}", static_cast<unsigned char>(text->front()));
  text->remove_prefix(std::max<size_t>(length, 1));
  return taken;
}

}  // namespace

size_t Utf8Length(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 && first <= 0xF4   ? 4
                        : first >= 0xE0 && first <= 0xEF ? 3
                        : first >= 0xC2 && first <= 0xDF ? 2
                                                         : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool surrogate = first == 0xED && byte(1) > 0x9F;
  const bool too_large = first == 0xF4 && byte(1) > 0x8F;
  return overlong || surrogate || too_large ? 0 : length;
}

bool IsUtf8(std::string_view text) { return Consists(text, &Utf8Length); }

std::string Utf8Text(std::string_view text) {
  std::string written;
  while (!text.empty()) written += TakeCharacter(&text, &Utf8Length);
  return written;
}

bool IsPlainText(std::string_view text) { return Consists(text, &PlainLength); }

size_t TextWidth(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) columns += DropCharacter(&text);
  return columns;
}

std::string FirstColumns(std::string_view text, size_t columns) {
  std::string_view rest = text;
  size_t used = 0;
  while (!rest.empty()) {
    std::string_view next = rest;
    used += DropCharacter(&next);
    if (used > columns) break;
    rest = next;
  }
  return std::string(text.substr(0, text.size() - rest.size()));
}

std::string PlainText(std::string_view text, size_t most) {
  std::string plain;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string next = TakeCharacter(&rest, &PlainLength);
    if (plain.size() + next.size() > most) {
      return plain + fmt::format("... ({} bytes)", text.size());
    }
    plain += next;
  }
  return plain;
}

bool HasPlainLines(std::string_view text) {
  while (true) {
    const size_t end = text.find('\n');
    if (!IsPlainText(text.substr(0, end))) return false;
    if (end == std::string_view::npos) return true;
    text.remove_prefix(end + 1);
  }
}

std::string PlainLines(std::string_view text) {
  std::string lines;
  while (true) {
    const size_t end = text.find('\n');
    lines += PlainText(text.substr(0, end), std::string::npos);
    if (end == std::string_view::npos) return lines;
    lines += '\n';
    text.remove_prefix(end + 1);
  }
}

}  // namespace lopt
