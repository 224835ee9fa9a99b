// Bytes of sixteen rows turned into columns of sixteen, and back: for the horizontal pass of resampling.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mso {

constexpr int kTransposedRows = 16;

// to[column * 16 + row] = rows[row][column].
void transpose_in(const uint8_t* const rows[kTransposedRows], size_t columns, uint8_t* to);

// The way back, for the first `rows` of the sixteen: to[stride * row + column] = from[column * 16 + row].
void transpose_out(const uint8_t* from, size_t columns, int rows, uint8_t* to, size_t stride);

}  // namespace mso
