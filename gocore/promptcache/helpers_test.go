package promptcache

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"axlm/gocore/errs"

	"github.com/klauspost/compress/zstd"
)

// safetensors makes a file of `arrays` bfloat16 arrays of n numbers each,
// which compress as keys and values do: the exponents alone.
func safetensors(arrays, n int) []byte {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	header := map[string]any{"__metadata__": map[string]string{"1.0": "KVCache", "2.0": ""}}
	var data []byte
	for i := range arrays {
		begin := len(data)
		for range n {
			data = binary.LittleEndian.AppendUint16(data, uint16(math.Float32bits(float32(random.NormFloat64()))>>16))
		}
		header[fmt.Sprintf("%d.0", i)] = map[string]any{"dtype": "BF16", "shape": []int{n}, "data_offsets": []int{begin, len(data)}}
	}
	return withHeader(header, data)
}

func withHeader(header map[string]any, data []byte) []byte {
	text, err := json.Marshal(header)
	if err != nil {
		panic(err)
	}
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), data...)
}

func write(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// packedFile packs content with Pack.
func packedFile(t testing.TB, content []byte) string {
	t.Helper()
	from := write(t, "cache.safetensors", content)
	if _, err := Pack(context.Background(), from, from+".zst", func(int64) {}); err != nil {
		t.Fatal(err)
	}
	return from + ".zst"
}

// unpack unpacks a file and reads the result. When it fails nothing may be
// left over.
func unpack(t testing.TB, path string) ([]byte, error) {
	t.Helper()
	return unpackLimit(t, path, math.MaxInt64)
}

func unpackLimit(t testing.TB, path string, limit int64) ([]byte, error) {
	t.Helper()
	to := filepath.Join(t.TempDir(), "out.safetensors")
	sizes, err := Unpack(context.Background(), path, to, limit, func(int64) {})
	content, readErr := os.ReadFile(to)
	switch {
	case err != nil && readErr == nil:
		t.Errorf("a failed Unpack left a file of %d bytes", len(content))
	case err == nil && readErr != nil:
		t.Fatal(readErr)
	case err == nil && int64(len(content)) != sizes.Content:
		t.Errorf("Unpack tells %d bytes, but wrote %d", sizes.Content, len(content))
	}
	return content, err
}

// mustFail checks that the packed bytes are refused as wrong, in words that
// have the file's name.
func mustFail(t *testing.T, packed []byte, words string) {
	t.Helper()
	path := write(t, "broken.safetensors.zst", packed)
	_, err := unpack(t, path)
	if err == nil {
		t.Fatalf("unpacked, but should fail with %q", words)
	}
	if errs.Kind(err) != errs.KindValue || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), words) {
		t.Errorf("%s: %q; want a ValueError with %q and the path", errs.Kind(err), err, words)
	}
}

// frameOf packs content as one frame with EncodeAll, which writes its size.
func frameOf(content []byte, o ...zstd.EOption) []byte {
	encoder, err := zstd.NewWriter(nil, o...)
	if err != nil {
		panic(err)
	}
	defer encoder.Close()
	return encoder.EncodeAll(content, nil)
}

// streamOf packs content as a stream, whose frame does not tell its size.
func streamOf(content []byte) []byte {
	var out bytes.Buffer
	encoder, err := zstd.NewWriter(&out)
	if err != nil {
		panic(err)
	}
	for len(content) > 0 { // a single Write would let the encoder know the size
		n := min(len(content), 100_000)
		if _, err := encoder.Write(content[:n]); err != nil {
			panic(err)
		}
		content = content[n:]
	}
	if err := encoder.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
