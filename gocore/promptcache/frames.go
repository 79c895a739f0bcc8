package promptcache

import (
	"errors"
	"fmt"
	"io"

	"axlm/gocore/errs"

	"github.com/klauspost/compress/zstd"
)

// frame is a frame with content: where it lies and how much it says to hold.
type frame struct {
	offset, packed int64
	content        int64 // −1: it does not say
}

// scan lists the frames of a packed file of size bytes from their headers and
// those of their blocks. It fails where these do not fit the file.
func scan(r io.ReaderAt, size int64, path string) ([]frame, error) {
	if size == 0 {
		return nil, errs.Value("%s is empty (0 bytes)", path)
	}
	r = &window{file: r, size: size}
	var frames []frame
	for offset := int64(0); offset < size; {
		f, next, err := scanFrame(r, offset, size)
		switch {
		case errors.Is(err, zstd.ErrMagicMismatch) && offset == 0:
			return nil, errs.Value("%s is not compressed with zstd%s", path, looksLike(r, size))
		case errors.Is(err, zstd.ErrMagicMismatch):
			return nil, errs.Value("%s is damaged: there is no zstd frame at byte %d", path, offset)
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, errs.Value("%s is truncated: the zstd frame at byte %d is longer than the file, which has %d bytes",
				path, offset, size)
		case errors.As(err, new(readError)):
			return nil, errs.OS("reading %s: %w", path, err)
		case err != nil:
			return nil, errs.Value("%s is damaged: zstd frame at byte %d: %w", path, offset, err)
		}
		if f.content != 0 {
			frames = append(frames, f)
		}
		if len(frames) > maxFrames {
			return nil, errs.Value("%s has more than %d zstd frames, which no prompt cache needs", path, maxFrames)
		}
		offset = next
	}
	return frames, nil
}

// readError is one of the file, not of its content.
type readError struct{ error }

// scanFrame reads the frame at offset and tells where the next one starts. A
// skippable frame has no content.
func scanFrame(r io.ReaderAt, offset, size int64) (frame, int64, error) {
	var buffer [zstd.HeaderMaxSize]byte
	begin := buffer[:min(int64(len(buffer)), size-offset)]
	if err := readFull(r, begin, offset); err != nil {
		return frame{}, 0, err
	}
	var header zstd.Header
	if err := header.Decode(begin); err != nil {
		return frame{}, 0, err
	}
	end := offset + int64(header.HeaderSize)
	if header.Skippable {
		end += int64(header.SkippableSize)
		return frame{}, end, within(end, size)
	}
	for last := false; !last; {
		if err := within(end+3, size); err != nil {
			return frame{}, 0, err
		}
		if err := readFull(r, buffer[:3], end); err != nil {
			return frame{}, 0, err
		}
		block := uint32(buffer[0]) | uint32(buffer[1])<<8 | uint32(buffer[2])<<16
		kind, length := block>>1&3, int64(block>>3)
		last = block&1 == 1
		if kind == 3 || length > maxBlockBytes {
			return frame{}, 0, fmt.Errorf("impossible block at byte %d", end)
		}
		if kind == 1 { // one byte, repeated
			length = 1
		}
		end += 3 + length
	}
	if header.HasCheckSum {
		end += 4
	}
	f := frame{offset: offset, packed: end - offset, content: -1}
	if header.HasFCS {
		if header.FrameContentSize > 1<<62 {
			return frame{}, 0, fmt.Errorf("impossible content size %d", header.FrameContentSize)
		}
		f.content = int64(header.FrameContentSize)
	}
	return f, end, within(end, size)
}

func within(end, size int64) error {
	if end > size {
		return io.ErrUnexpectedEOF
	}
	return nil
}

func readFull(r io.ReaderAt, into []byte, offset int64) error {
	n, err := r.ReadAt(into, offset)
	var failed readError
	switch {
	case n == len(into):
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // the file became shorter
		return io.ErrUnexpectedEOF
	case errors.As(err, &failed):
		return err
	}
	return readError{err}
}

// window reads a file a few KiB at a time: what scan looks at often lies close
// together, most of all in a file that says much with few bytes.
type window struct {
	file   io.ReaderAt
	size   int64
	buffer [4096]byte
	offset int64
	filled int
}

func (w *window) ReadAt(into []byte, offset int64) (int, error) {
	if offset < w.offset || offset+int64(len(into)) > w.offset+int64(w.filled) {
		w.offset, w.filled = offset, 0
		part := w.buffer[:min(int64(len(w.buffer)), w.size-offset)]
		if err := readFull(w.file, part, offset); err != nil {
			return 0, err
		}
		w.filled = len(part)
	}
	return copy(into, w.buffer[offset-w.offset:w.filled]), nil
}

// looksLike tells what a file that is not zstd may be instead.
func looksLike(r io.ReaderAt, size int64) string {
	var begin [9]byte
	if size >= int64(len(begin)) && readFull(r, begin[:], 0) == nil && begin[5]|begin[6]|begin[7] == 0 && begin[8] == '{' {
		return "; it looks like a plain safetensors file, whose name ends in .safetensors"
	}
	return ""
}

// totalContent is the frames' content together, −1 if one does not say or the
// sum overflows.
func totalContent(frames []frame) int64 {
	total := int64(0)
	for _, f := range frames {
		if f.content < 0 || total+f.content < 0 {
			return -1
		}
		total += f.content
	}
	return total
}

// largestContent is the largest one's.
func largestContent(frames []frame) int64 {
	largest := int64(0)
	for _, f := range frames {
		largest = max(largest, f.content)
	}
	return largest
}
