package weights

import (
	"math"
	"strconv"
	"strings"
)

// Tensor is one entry of a safetensors header: what an array is and where its
// bytes lie.
type Tensor struct {
	Name   string // in the folder's table, which Rename changes
	Source string // in its file
	DType  string // safetensors's name: BF16, F16, F32, U32, …
	Shape  []int
	File   string // name within the folder
	Offset int64  // of the first byte, from the start of the file
	Length int64  // in bytes
}

// dtypeBytes holds the element size of every dtype that MLX loads. The two
// 8-bit floats arrive as uint8.
var dtypeBytes = map[string]int64{
	"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E8M0": 1,
	"U16": 2, "I16": 2, "F16": 2, "BF16": 2,
	"U32": 4, "I32": 4, "F32": 4,
	"U64": 8, "I64": 8, "C64": 8,
}

// isFloat reports whether arithmetic can be done in the dtype.
func isFloat(dtype string) bool {
	return dtype == "BF16" || dtype == "F16" || dtype == "F32"
}

// byteSize is the size of an array, −1 if a dimension or the product is out of
// range.
func byteSize(shape []int64, itemBytes int64) int64 {
	size, empty := itemBytes, false
	for _, dim := range shape {
		if dim < 0 || dim > math.MaxInt32 {
			return -1
		}
		if dim == 0 {
			empty = true
			continue
		}
		if size > math.MaxInt64/dim {
			return -1
		}
		size *= dim
	}
	if empty {
		return 0
	}
	return size
}

// shapeText is a shape as messages show it: [2, 3].
func shapeText(shape []int) string {
	parts := make([]string, len(shape))
	for i, dim := range shape {
		parts[i] = strconv.Itoa(dim)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// some lists the first few of total names for a message.
func some(names []string, total int) string {
	const limit = 4
	text := strings.Join(names[:min(len(names), limit)], ", ")
	if total > limit {
		return text + " …"
	}
	return text
}
