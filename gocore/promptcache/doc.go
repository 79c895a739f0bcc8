// Package promptcache keeps prompt caches on disk: a safetensors file inside
// standard zstd, packed and unpacked in parallel. It needs no MLX.
//
// A packed file is a row of independent zstd frames, one for each MiB, each
// with its content's size and checksum. That is all that parallel work needs:
// any zstd decoder reads the row as one stream, while Unpack walks the block
// headers, which takes no decoding, and so knows where each frame's content
// belongs before it starts. Files that other programs packed, as one long
// frame or without sizes, are unpacked as a stream.
//
// What a file claims is checked before it is believed: the blocks against the
// file's length, the frames' sizes against the safetensors header inside and
// against the caller's limit, the contents against their checksums.
package promptcache

import (
	"runtime"

	"github.com/klauspost/compress/zstd"
)

const (
	// frameBytes is the content of a frame. The numbers in keys and values hold
	// few matches, so a longer frame compresses no better: 0.2 % between 1 and
	// 16 MiB.
	frameBytes = 1 << 20

	// maxFrameBytes is how much content a frame may have to be decoded in one
	// piece.
	maxFrameBytes = 64 << 20

	// memoryBytes is what the frames that are decoded at a time may take.
	memoryBytes = 512 << 20

	// maxWindowBytes is the longest back reference that the zstd program
	// accepts by default. A decoder allocates as much.
	maxWindowBytes = 128 << 20

	// maxFrames is far over what a cache needs and keeps their list small.
	maxFrames = 1 << 22

	// maxBlockBytes is the format's limit.
	maxBlockBytes = 128 << 10
)

// workers is how many frames of content bytes to work on at a time.
func workers(content int64) int {
	return max(1, min(runtime.GOMAXPROCS(0), int(memoryBytes/max(content, 1))))
}

// encoderOptions: keys and values hardly repeat, so all that is won is won by
// entropy coding, which the fastest level skips where it finds no match unless
// it is told otherwise. Higher levels take longer for 0.2 % less.
func encoderOptions(concurrency int) []zstd.EOption {
	return []zstd.EOption{
		zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithAllLitEntropyCompression(true),
		zstd.WithEncoderCRC(true),
		zstd.WithWindowSize(frameBytes),
		zstd.WithEncoderConcurrency(concurrency),
	}
}
