package promptcache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"axlm/gocore/errs"
	"axlm/gocore/weights"

	"github.com/klauspost/compress/zstd"
)

// Measure tells the sizes of a packed file from its frames' headers and the
// safetensors header inside, of which it checks that they agree.
func Measure(path string) (Sizes, error) {
	p, err := openPacked(path)
	if err != nil {
		return Sizes{}, err
	}
	defer p.file.Close()
	return p.sizes, nil
}

// MeasurePlain checks the header of a safetensors file that is not packed; both
// sizes are the file's.
func MeasurePlain(path string) (Sizes, error) {
	file, size, err := open(path)
	if err != nil {
		return Sizes{}, err
	}
	defer file.Close()
	var begin [4]byte
	var header zstd.Header
	if size >= 4 && readFull(file, begin[:], 0) == nil && !errors.Is(header.Decode(begin[:]), zstd.ErrMagicMismatch) {
		return Sizes{}, errs.Value("%s is compressed with zstd; such a file's name ends in .zst", path)
	}
	if _, err := weights.Tensors(file, size, path); err != nil {
		return Sizes{}, err
	}
	return Sizes{Content: size, Packed: size}, nil
}

// Unpack writes the content of the packed file from into the file to, which
// must not exist, and which is left only if all was well. A content of more
// than limit bytes is refused before anything is written.
func Unpack(ctx context.Context, from, to string, limit int64, progress Progress) (Sizes, error) {
	p, err := openPacked(from)
	if err != nil {
		return Sizes{}, err
	}
	defer p.file.Close()
	if p.sizes.Content > limit {
		return Sizes{}, errs.Value("%s would unpack to %d bytes, but %d at most are allowed", from, p.sizes.Content, limit)
	}
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Sizes{}, errs.OS("unpacking %s: %w", from, err)
	}
	if p.parallel() {
		err = p.unpackFrames(ctx, target, progress)
	} else {
		err = p.unpackStream(ctx, target, progress)
	}
	err = errors.Join(err, target.Close())
	if err != nil {
		return Sizes{}, errors.Join(err, os.Remove(to))
	}
	return p.sizes, nil
}

// packed is an open packed file whose headers were found to be right.
type packed struct {
	path   string
	file   *os.File
	frames []frame
	sizes  Sizes
}

func openPacked(path string) (_ *packed, err error) {
	file, size, err := open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = file.Close() // it was only read
		}
	}()
	frames, err := scan(file, size, path)
	if err != nil {
		return nil, err
	}
	p := &packed{path: path, file: file, frames: frames, sizes: Sizes{Packed: size}}
	p.sizes.Content, err = p.contentSize()
	return p, err
}

// contentSize reads the safetensors header inside and returns how long the
// file that it heads must be. It is the same as the frames' sizes, if all say
// theirs.
func (p *packed) contentSize() (int64, error) {
	stream, err := p.stream()
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	declared := totalContent(p.frames)
	begin := &beginning{stream: stream}
	size := declared
	if declared < 0 {
		size = math.MaxInt64
	}
	tensors, err := weights.Tensors(begin, size, "the content of "+p.path)
	if begin.err != nil {
		return 0, p.damage("", begin.err)
	}
	if err != nil {
		return 0, err
	}
	end := int64(len(begin.read))
	for _, t := range tensors {
		end = max(end, t.Offset+t.Length)
	}
	if declared >= 0 && declared != end {
		return 0, errs.Value("%s holds %d bytes, but the safetensors header inside accounts for %d", p.path, declared, end)
	}
	return end, nil
}

// parallel tells whether the frames can be decoded on their own.
func (p *packed) parallel() bool {
	return totalContent(p.frames) == p.sizes.Content && largestContent(p.frames) <= maxFrameBytes
}

// unpackFrames decodes several frames at a time and puts each where it belongs.
func (p *packed) unpackFrames(ctx context.Context, w io.WriterAt, progress Progress) error {
	largest := largestContent(p.frames)
	n := min(workers(2*largest), len(p.frames))
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(n), zstd.WithDecoderMaxWindow(maxWindowBytes),
		zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return errs.Internal("zstd: %w", err)
	}
	defer decoder.Close()
	places := make([]int64, len(p.frames)+1)
	for i, f := range p.frames {
		places[i+1] = places[i] + f.content
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var running sync.WaitGroup
	for range n {
		running.Go(func() {
			content := make([]byte, 0, largest)
			var input []byte
			for {
				i := int(next.Add(1)) - 1
				if i >= len(p.frames) || ctx.Err() != nil {
					return
				}
				f := p.frames[i]
				err := guarded(func() error {
					if int64(cap(input)) < f.packed {
						input = make([]byte, f.packed)
					}
					if err := readFull(p.file, input[:f.packed], f.offset); err != nil {
						return p.damage("", err)
					}
					decoded, err := decoder.DecodeAll(input[:f.packed], content[:0:f.content])
					if err != nil || int64(len(decoded)) != f.content {
						return p.damage(fmt.Sprintf("zstd frame at byte %d: ", f.offset), err)
					}
					if _, err := w.WriteAt(decoded, places[i]); err != nil {
						return errs.OS("unpacking %s: %w", p.path, err)
					}
					return nil
				})
				if err != nil {
					cancel(err)
					return
				}
				progress(f.content)
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// unpackStream decodes one frame after another.
func (p *packed) unpackStream(ctx context.Context, w io.Writer, progress Progress) error {
	stream, err := p.stream()
	if err != nil {
		return err
	}
	defer stream.Close()
	buffer := make([]byte, frameBytes)
	for left := p.sizes.Content; ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		k, err := io.ReadFull(stream, buffer)
		if int64(k) > left {
			return errs.Value("%s holds more than the %d bytes that the safetensors header inside accounts for", p.path, p.sizes.Content)
		}
		if _, err := w.Write(buffer[:k]); err != nil {
			return errs.OS("unpacking %s: %w", p.path, err)
		}
		left -= int64(k)
		progress(int64(k))
		switch {
		case err == nil:
			continue
		case stream.ended && left == 0:
			return nil
		case stream.ended:
			return errs.Value("%s is truncated: it holds %d bytes, but the safetensors header inside accounts for %d",
				p.path, p.sizes.Content-left, p.sizes.Content)
		}
		return p.damage("", err)
	}
}

// stream reads the whole content. It decodes in the caller's goroutine alone,
// where a panic can be caught.
func (p *packed) stream() (*stream, error) {
	decoder, err := zstd.NewReader(io.NewSectionReader(p.file, 0, p.sizes.Packed), zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxWindow(maxWindowBytes), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, p.damage("", err)
	}
	return &stream{Decoder: decoder}, nil
}

// stream is a decoder that notes when it has come to the end in good order,
// which io.ReadFull makes look like a truncation.
type stream struct {
	*zstd.Decoder
	ended bool
}

func (s *stream) Read(into []byte) (int, error) {
	var k int
	err := guarded(func() (err error) {
		k, err = s.Decoder.Read(into)
		return err
	})
	s.ended = s.ended || err == io.EOF
	return k, err
}

// beginning lets the first bytes of a stream be read at any place.
type beginning struct {
	stream *stream
	read   []byte
	err    error
}

// ReadAt reads on as far as it takes.
func (b *beginning) ReadAt(into []byte, offset int64) (int, error) {
	end := int(offset) + len(into)
	if b.err == nil && len(b.read) < end {
		more := make([]byte, end-len(b.read))
		k, err := io.ReadFull(b.stream, more)
		b.read = append(b.read, more[:k]...)
		b.err = err
	}
	return copy(into, b.read[min(int(offset), len(b.read)):]), b.err
}

// damage says what is wrong with the packed bytes, of which err is what the
// decoder says.
func (p *packed) damage(where string, err error) error {
	var failed readError
	switch {
	case errors.As(err, &failed):
		return errs.OS("reading %s: %w", p.path, failed)
	case err == nil, errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return errs.Value("%s is damaged: %sits content is not as long as it says", p.path, where)
	case errors.Is(err, zstd.ErrCRCMismatch):
		return errs.Value("%s is damaged: %sthe checksum of its content is wrong", p.path, where)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errs.Value("%s is truncated: %sits content ends early", p.path, where)
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return errs.Value("%s: %sit was compressed with a window of more than %d MiB; compress it without --long", p.path, where, maxWindowBytes>>20)
	case errors.Is(err, zstd.ErrUnknownDictionary):
		return errs.Value("%s: %sit was compressed with a dictionary, which is not supported", p.path, where)
	}
	return errs.Value("%s is damaged: %s%w", p.path, where, err)
}
