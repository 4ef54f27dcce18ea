#include "lopt/base/output_file.h"

#include <cerrno>
#include <span>

#include "lopt/base/error.h"

namespace lopt {
namespace {

// What is gathered is written when there is so much of it.
constexpr size_t kMostGathered = 8192;

}  // namespace

OutputFile::OutputFile(const std::string& path, OpenFor how)
    : path_(path), file_(path, how, "cannot open") {}

OutputFile::~OutputFile() { HandOver(); }

void OutputFile::Write(std::string_view text) {
  gathered_ += text;
  if (gathered_.size() >= kMostGathered) {
    HandOver();
  }
}

void OutputFile::Flush() {
  HandOver();
  Require(error_ == 0, "{}: cannot be written: {}", path_, SystemReason(error_));
}

void OutputFile::Drop() {
  gathered_.clear();
  error_ = ECANCELED;
}

void OutputFile::HandOver() {
  if (error_ == 0 && !gathered_.empty()) {
    error_ = file_.Write(std::as_bytes(std::span(gathered_)));
  }
  gathered_.clear();
}

}  // namespace lopt
