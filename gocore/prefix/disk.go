package prefix

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"axlm/gocore/blocks"
	"axlm/gocore/errs"

	"github.com/klauspost/compress/zstd"
)

const (
	diskMagic  = "axlm-prefix-1\n"
	diskExt    = ".prefix"
	diskTemp   = ".writing"
	maxContent = 1 << 32
)

// Disk keeps payloads' contents in a folder, one file each, so that they survive
// a restart. A file is zstd around a record: model digest, engine version, salt,
// tokens and content, under a SHA-256 of all of it. It appears whole, by a
// rename; a file that is damaged, of another model or version, or of other tokens
// than its name says is skipped and counted, never believed.
type Disk struct {
	folder, key string
	decoder     *zstd.Decoder
	encoder     *zstd.Encoder
	stats       DiskStats
}

// DiskStats count files.
type DiskStats struct {
	Written, Read, Damaged, Foreign, Removed uint64
}

// OpenDisk opens or makes a folder for the states of one model by one version of
// the engine. What a crash left half written there is removed.
func OpenDisk(folder, model, engine string) (*Disk, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, errs.OS("prefixes on disk: %w", err)
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxContent), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, errs.Internal("zstd: %w", err)
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithAllLitEntropyCompression(true), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, errs.Internal("zstd: %w", err)
	}
	d := &Disk{folder: folder, key: field(model) + field(engine), decoder: decoder, encoder: encoder}
	left, err := filepath.Glob(filepath.Join(escape(folder), "*"+diskTemp))
	for _, name := range left {
		err = errors.Join(err, os.Remove(name))
	}
	if err != nil {
		d.Close()
		return nil, errs.OS("prefixes on disk: %w", err)
	}
	return d, nil
}

// escape keeps a folder's name from being a pattern.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}

// field is s with its length before it, so that fields cannot run together.
func field(s string) string { return string(binary.AppendUvarint(nil, uint64(len(s)))) + s }

// Close frees the codecs; the files stay.
func (d *Disk) Close() {
	d.decoder.Close()
	_ = d.encoder.Close()
}

// Stats counts.
func (d *Disk) Stats() DiskStats { return d.stats }

// head is what comes before the content: whose it is and after which tokens.
func (d *Disk) head(salt string, tokens []int32) []byte {
	b := []byte(diskMagic + d.key + field(salt))
	b = binary.AppendUvarint(b, uint64(len(tokens)))
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	return b
}

func (d *Disk) path(head []byte) string {
	sum := sha256.Sum256(head)
	return filepath.Join(d.folder, hex.EncodeToString(sum[:])+diskExt)
}

// Write keeps content as what follows tokens under salt.
func (d *Disk) Write(salt string, tokens []int32, content []byte) (err error) {
	head := d.head(salt, tokens)
	record := append(slices.Clip(head), content...)
	sum := sha256.Sum256(record)
	packed := d.encoder.EncodeAll(append(record, sum[:]...), nil)
	f, err := os.CreateTemp(d.folder, "*"+diskTemp)
	if err != nil {
		return errs.OS("prefixes on disk: %w", err)
	}
	_, err = f.Write(packed)
	if err == nil {
		err = f.Sync() // the name must not be there before the content is
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), d.path(head))
	}
	if err != nil {
		return errs.OS("prefixes on disk: %w", errors.Join(err, os.Remove(f.Name())))
	}
	d.stats.Written++
	return nil
}

// Read returns what Write kept for exactly these tokens; false if there is none
// that can be believed.
func (d *Disk) Read(salt string, tokens []int32) ([]byte, bool) {
	head := d.head(salt, tokens)
	packed, err := os.ReadFile(d.path(head))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			d.stats.Damaged++
		}
		return nil, false
	}
	record, err := d.decoder.DecodeAll(packed, nil)
	if err != nil || len(record) < len(diskMagic)+sha256.Size {
		d.stats.Damaged++
		return nil, false
	}
	body := record[:len(record)-sha256.Size]
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], record[len(body):]) {
		d.stats.Damaged++
		return nil, false
	}
	content, ok := bytes.CutPrefix(body, head)
	if !ok {
		d.stats.Foreign++
		return nil, false
	}
	d.stats.Read++
	return content, true
}

// Longest reads the longest checkpoint kept for a beginning of tokens that has
// more than from tokens and leaves at least one.
func (d *Disk) Longest(salt string, tokens []int32, from int) (content []byte, n int) {
	for n := (len(tokens) - 1) / blocks.Size * blocks.Size; n > from; n -= blocks.Size {
		if content, ok := d.Read(salt, tokens[:n]); ok {
			return content, n
		}
	}
	return nil, 0
}

// Trim removes the files written longest ago until at most limit bytes
// are left.
func (d *Disk) Trim(limit int64) error {
	type file struct {
		path string
		info fs.FileInfo
	}
	entries, err := os.ReadDir(d.folder)
	if err != nil {
		return errs.OS("prefixes on disk: %w", err)
	}
	var files []file
	total := int64(0)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && strings.HasSuffix(e.Name(), diskExt) {
			files = append(files, file{filepath.Join(d.folder, e.Name()), info})
			total += info.Size()
		}
	}
	slices.SortFunc(files, func(a, b file) int { return a.info.ModTime().Compare(b.info.ModTime()) })
	for _, f := range files {
		if total <= limit {
			break
		}
		if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errs.OS("prefixes on disk: %w", fmt.Errorf("%s: %w", filepath.Base(f.path), err))
		}
		total -= f.info.Size()
		d.stats.Removed++
	}
	return nil
}
