package weights

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"unicode/utf8"

	"axlm/gocore/errs"
)

// maxHeaderBytes is the limit of the format's own readers.
const maxHeaderBytes = 100_000_000

// lengthBytes is the size of the number, little endian, that a file starts
// with: the header's length.
const lengthBytes = 8

// fileInfo is what identifies a file's content to a manifest: the header says
// where everything is, so equal headers and sizes mean an equal layout.
type fileInfo struct {
	size       int64
	headerHash string // SHA-256 over the length and the header, hex
}

// readHeader reads and checks the header of dir/name.
func readHeader(dir, name string) ([]Tensor, fileInfo, error) {
	path := filepath.Join(dir, name)
	// A pipe or device must be refused before opening it blocks.
	stat, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fileInfo{}, errs.NotFound("%s does not exist", path)
	}
	if err != nil {
		return nil, fileInfo{}, errs.OS("%w", err)
	}
	if !stat.Mode().IsRegular() {
		return nil, fileInfo{}, errs.OS("%s is not a regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fileInfo{}, errs.OS("%w", err)
	}
	defer file.Close()
	header, err := headerBytes(file, stat.Size(), path)
	if err != nil {
		return nil, fileInfo{}, err
	}
	tensors, err := parseHeader(header, stat.Size(), path)
	if err != nil {
		return nil, fileInfo{}, err
	}
	for i := range tensors {
		tensors[i].File = name
	}
	sum := sha256.Sum256(header)
	return tensors, fileInfo{size: stat.Size(), headerHash: hex.EncodeToString(sum[:])}, nil
}

// Tensors reads and checks the header of a safetensors file of size bytes, as
// readHeader does for a file of a folder. The tensors come in the order of
// their bytes; path only names the file in errors.
func Tensors(r io.ReaderAt, size int64, path string) ([]Tensor, error) {
	header, err := headerBytes(r, size, path)
	if err != nil {
		return nil, err
	}
	return parseHeader(header, size, path)
}

// headerBytes reads the length and the header. Nothing is allocated before the
// length is known to be within the file.
func headerBytes(r io.ReaderAt, size int64, path string) ([]byte, error) {
	if size == 0 {
		return nil, errs.Value("%s is empty (0 bytes)", path)
	}
	if size < lengthBytes {
		return nil, errs.Value("%s is truncated: %d bytes, too few for the header's length", path, size)
	}
	var prefix [lengthBytes]byte
	if _, err := r.ReadAt(prefix[:], 0); err != nil {
		return nil, errs.OS("reading %s: %w", path, err)
	}
	length := binary.LittleEndian.Uint64(prefix[:])
	if length > maxHeaderBytes {
		return nil, errs.Value("%s is no safetensors file: its header would be %d bytes long", path, length)
	}
	if left := size - lengthBytes; int64(length) > left {
		return nil, errs.Value("%s is truncated: its header has %d bytes, of which the file holds %d", path, length, left)
	}
	header := make([]byte, lengthBytes+int(length))
	if _, err := r.ReadAt(header, 0); err != nil {
		return nil, errs.OS("reading the header of %s: %w", path, err)
	}
	return header, nil
}

// entry is a tensor as the header writes it.
type entry struct {
	DType   *string `json:"dtype"`
	Shape   []int64 `json:"shape"`
	Offsets []int64 `json:"data_offsets"`
}

// parseHeader checks the header, of which the first 8 bytes are its length,
// against a file of size bytes. The tensors come in the order of their bytes.
func parseHeader(header []byte, size int64, path string) ([]Tensor, error) {
	text := header[lengthBytes:]
	if !utf8.Valid(text) {
		return nil, errs.Value("%s: the header is not UTF-8", path)
	}
	if err := validJSON(path+": header", text); err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return nil, errs.Value("%s: the header is no JSON object", path)
	}
	var tensors []Tensor
	seen := map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, errs.Value("%s: header: %w", path, err)
		}
		name := token.(string) // a key, as the syntax is valid
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return nil, errs.Value("%s: header: %w", path, err)
		}
		if seen[name] {
			return nil, errs.Value("%s: the header names %s twice", path, name)
		}
		seen[name] = true
		if name == "__metadata__" {
			continue
		}
		tensor, err := parseEntry(raw, name, int64(len(header)), size, path)
		if err != nil {
			return nil, err
		}
		tensors = append(tensors, tensor)
	}
	return tensors, checkOverlap(tensors, path)
}

func parseEntry(raw json.RawMessage, name string, start, size int64, path string) (Tensor, error) {
	var e entry
	if err := json.Unmarshal(raw, &e); err != nil {
		return Tensor{}, errs.Value("%s: tensor %s: %w", path, name, err)
	}
	if e.DType == nil || e.Shape == nil || len(e.Offsets) != 2 {
		return Tensor{}, errs.Value("%s: tensor %s: want dtype, shape and two data_offsets, got %s", path, name, cut(raw))
	}
	item, known := dtypeBytes[*e.DType]
	if !known {
		return Tensor{}, errs.Value("%s: tensor %s: dtype %q is not one that MLX loads", path, name, *e.DType)
	}
	want := byteSize(e.Shape, item)
	if want < 0 {
		return Tensor{}, errs.Value("%s: tensor %s: impossible shape %s", path, name, cut(raw))
	}
	begin, end, have := e.Offsets[0], e.Offsets[1], size-start
	if begin < 0 || end < begin {
		return Tensor{}, errs.Value("%s: tensor %s: impossible data_offsets [%d, %d]", path, name, begin, end)
	}
	shape := make([]int, len(e.Shape))
	for i, dim := range e.Shape {
		shape[i] = int(dim)
	}
	if end-begin != want {
		return Tensor{}, errs.Value("%s: tensor %s: %s %s takes %d bytes, but data_offsets [%d, %d] hold %d",
			path, name, *e.DType, shapeText(shape), want, begin, end, end-begin)
	}
	if end > have {
		return Tensor{}, errs.Value("%s is truncated: tensor %s ends at byte %d of the data, of which the file holds %d",
			path, name, end, have)
	}
	return Tensor{Name: name, Source: name, DType: *e.DType, Shape: shape, Offset: start + begin, Length: want}, nil
}

// checkOverlap sorts the tensors by place and refuses two that share bytes.
func checkOverlap(tensors []Tensor, path string) error {
	sort.Slice(tensors, func(i, j int) bool {
		a, b := &tensors[i], &tensors[j]
		if a.Offset != b.Offset {
			return a.Offset < b.Offset
		}
		if a.Length != b.Length {
			return a.Length < b.Length
		}
		return a.Name < b.Name
	})
	last := -1 // the last one that has bytes
	for i := range tensors {
		if tensors[i].Length == 0 {
			continue
		}
		if last >= 0 && tensors[i].Offset < tensors[last].Offset+tensors[last].Length {
			return errs.Value("%s: tensors %s and %s share bytes", path, tensors[last].Name, tensors[i].Name)
		}
		last = i
	}
	return nil
}

// cut shortens a piece of a header for a message.
func cut(raw []byte) string {
	const limit = 120
	if len(raw) > limit {
		return strings.ToValidUTF8(string(raw[:limit]), "") + "…"
	}
	return string(raw)
}
