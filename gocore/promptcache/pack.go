package promptcache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"axlm/gocore/errs"

	"github.com/klauspost/compress/zstd"
)

// Sizes are a file's, in bytes.
type Sizes struct {
	Content int64 `json:"content"` // the safetensors file
	Packed  int64 `json:"packed"`
}

// Progress is told how many bytes of the content are done. It is called from
// several goroutines.
type Progress func(done int64)

// Pack compresses the file from into the file to. That one appears whole or
// not at all, in place of what had its name; where it is a symbolic link, in
// place of what it points to.
func Pack(ctx context.Context, from, to string, progress Progress) (Sizes, error) {
	source, size, err := open(from)
	if err != nil {
		return Sizes{}, err
	}
	defer source.Close()
	var packed int64
	err = replace(to, func(w io.Writer) error {
		packed, err = pack(ctx, source, size, w, progress)
		return err
	})
	if err != nil {
		return Sizes{}, fmt.Errorf("writing %s: %w", to, err)
	}
	return Sizes{Content: size, Packed: packed}, nil
}

// pack writes size bytes of r as frames, in order, compressing several at a
// time. It returns how many bytes it wrote.
func pack(ctx context.Context, r io.ReaderAt, size int64, w io.Writer, progress Progress) (written int64, err error) {
	n := workers(2 * frameBytes)
	encoder, err := zstd.NewWriter(nil, encoderOptions(n)...)
	if err != nil {
		return 0, errs.Internal("zstd: %w", err)
	}
	defer encoder.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		packed []byte
		err    error
	}
	// As many results wait here as there are workers, so that a slow disk holds
	// up the compression, not memory.
	queue := make(chan chan result, n)
	go func() {
		defer close(queue)
		for offset := int64(0); offset < size; offset += frameBytes {
			r, length := io.NewSectionReader(r, offset, min(frameBytes, size-offset)), min(frameBytes, size-offset)
			done := make(chan result, 1)
			select {
			case queue <- done:
			case <-ctx.Done():
				return
			}
			go func() {
				var packed []byte
				err := guarded(func() error {
					content := make([]byte, length)
					if _, err := io.ReadFull(r, content); err != nil {
						return errs.OS("%w", err)
					}
					packed = encoder.EncodeAll(content, make([]byte, 0, encoder.MaxEncodedSize(len(content))))
					return nil
				})
				progress(length)
				done <- result{packed, err}
			}()
		}
	}()
	for done := range queue {
		result := <-done
		if result.err == nil && err == nil {
			var k int
			if k, result.err = w.Write(result.packed); result.err != nil {
				result.err = errs.OS("%w", result.err)
			}
			written += int64(k)
		}
		if result.err != nil && err == nil {
			err = result.err
			cancel() // and go on until those that started have ended
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	return written, err
}

// replace lets write make a file beside path and gives it path's name when it
// is complete.
func replace(path string, write func(io.Writer) error) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	mode := fs.FileMode(0)
	switch old, err := os.Stat(path); {
	case err == nil && !old.Mode().IsRegular():
		return errs.OS("%s is not a regular file", path)
	case err == nil:
		mode = old.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return errs.OS("%w", err)
	}
	temp, err := create(path)
	if errors.Is(err, fs.ErrNotExist) {
		return errs.NotFound("there is no folder %s", filepath.Dir(path))
	}
	if err != nil {
		return errs.OS("%w", err)
	}
	err = write(temp)
	if err == nil && mode != 0 {
		err = temp.Chmod(mode)
	}
	err = errors.Join(err, temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return nil
}

// create makes a new file beside path with the permissions that the user's
// umask gives, which os.CreateTemp does not.
func create(path string) (*os.File, error) {
	for {
		name := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%08x.tmp", rand.Uint32()))
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}

// open opens a regular file and tells its size.
func open(path string) (*os.File, int64, error) {
	// A pipe or device must be refused before opening it blocks.
	stat, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, errs.NotFound("%s does not exist", path)
	}
	if err != nil {
		return nil, 0, errs.OS("%w", err)
	}
	if !stat.Mode().IsRegular() {
		return nil, 0, errs.OS("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, errs.OS("%w", err)
	}
	return f, stat.Size(), nil
}
