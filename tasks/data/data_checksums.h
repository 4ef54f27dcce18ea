#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "lopt/tasks/data/raw_images.h"

namespace lopt {

// The CRC-32 of images as they were read: sizes, splits, labels and pixels.
uint32_t ChecksumOf(const RawImages& images);
// That of the bytes of a text.
uint32_t ChecksumOf(std::span<const uint8_t> text);

// Throws Error, "cannot resume <stored>: ...", if the data sets that are read from files now
// are not those of then, both as TaskResources::DataChecksums names them. Nothing then: it is not
// known.
void RequireSameData(const std::string& stored, const std::optional<std::string>& then,
                     const std::string& now);
// Throws Error if the data sets that are read now are not those that a model was trained on.
void RequireDataOf(const std::string& model, const std::optional<std::string>& then,
                   const std::string& now);
// Throws Error if two processes of a job, by these names, compute on different data.
void RequireSameDataOn(const std::string& who, const std::string& data, const std::string& learner,
                       const std::string& learner_data);

}  // namespace lopt
