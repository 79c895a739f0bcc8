package weights

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"testing"

	"axlm/gocore/errs"
)

func TestHeaderTable(t *testing.T) {
	tb := table{"a": "BF16 2 3", "b": "U32 4", "c": "F32", "d": "U8 0 5"}
	dir := write(t, map[string]any{"m.safetensors": tb})
	tensors, info, err := readHeader(dir, "m.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	text, data := tb.header()
	start := int64(8 + len(text))
	want := []Tensor{
		{Name: "a", Source: "a", DType: "BF16", Shape: []int{2, 3}, File: "m.safetensors", Offset: start, Length: 12},
		{Name: "b", Source: "b", DType: "U32", Shape: []int{4}, File: "m.safetensors", Offset: start + 12, Length: 16},
		{Name: "d", Source: "d", DType: "U8", Shape: []int{0, 5}, File: "m.safetensors", Offset: start + 32, Length: 0},
		{Name: "c", Source: "c", DType: "F32", Shape: []int{}, File: "m.safetensors", Offset: start + 28, Length: 4},
	}
	want[2], want[3] = want[3], want[2]
	if !reflect.DeepEqual(tensors, want) {
		t.Errorf("got %+v", tensors)
	}
	if info.size != start+data || len(info.headerHash) != 64 {
		t.Errorf("info %+v", info)
	}
}

func TestHeaderErrors(t *testing.T) {
	one := func(entry string, data int64) []byte { return safetensors([]byte(`{"w":`+entry+`}`), data) }
	length := func(n uint64, rest string) []byte { return append(binary.LittleEndian.AppendUint64(nil, n), rest...) }
	ok := table{"w": "F32 4"}.file()
	cases := map[string]struct {
		file []byte
		want string
	}{
		"empty file":        {nil, "is empty (0 bytes)"},
		"no length":         {[]byte{1, 2, 3}, "truncated: 3 bytes"},
		"header cut":        {ok[:20], "truncated: its header has"},
		"data cut":          {ok[:len(ok)-1], "truncated: tensor w ends at byte 16 of the data, of which the file holds 15"},
		"huge header":       {length(1<<60, "{}"), "no safetensors file"},
		"negative header":   {length(1<<63+5, "{}"), "no safetensors file"},
		"header over limit": {length(maxHeaderBytes+1, "{}"), "no safetensors file"},
		"empty header":      {length(0, ""), "header: not valid JSON"},
		"no JSON":           {length(4, "abcd"), "header: not valid JSON at line 1, column 1"},
		"no object":         {length(2, "[]"), "no JSON object"},
		"text after":        {safetensors([]byte(`{} x`), 0), "not valid JSON"},
		"not UTF-8":         {safetensors([]byte("{\"\xff\":1}"), 0), "not UTF-8"},
		"entry no object":   {one(`3`, 4), "tensor w"},
		"no dtype":          {one(`{"shape":[1],"data_offsets":[0,4]}`, 4), "tensor w: want dtype"},
		"no shape":          {one(`{"dtype":"F32","data_offsets":[0,4]}`, 4), "tensor w: want dtype"},
		"one offset":        {one(`{"dtype":"F32","shape":[1],"data_offsets":[4]}`, 4), "two data_offsets"},
		"unknown dtype":     {one(`{"dtype":"F4","shape":[8],"data_offsets":[0,4]}`, 4), `tensor w: dtype "F4"`},
		"F64":               {one(`{"dtype":"F64","shape":[1],"data_offsets":[0,8]}`, 8), `tensor w: dtype "F64"`},
		"negative dim":      {one(`{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}`, 4), "tensor w: impossible shape"},
		"huge dim":          {one(`{"dtype":"F32","shape":[3000000000],"data_offsets":[0,4]}`, 4), "impossible shape"},
		"overflowing shape": {one(`{"dtype":"F32","shape":[2000000000,2000000000,2000000000],"data_offsets":[0,4]}`, 4), "impossible shape"},
		"fractional dim":    {one(`{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}`, 4), "tensor w"},
		"offset too large":  {one(`{"dtype":"F32","shape":[1],"data_offsets":[0,99999999999999999999]}`, 4), "tensor w"},
		"negative offset":   {one(`{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}`, 4), "impossible data_offsets [-4, 0]"},
		"offsets reversed":  {one(`{"dtype":"F32","shape":[1],"data_offsets":[4,0]}`, 4), "impossible data_offsets [4, 0]"},
		"range too short":   {one(`{"dtype":"F32","shape":[2],"data_offsets":[0,4]}`, 4), "F32 [2] takes 8 bytes, but data_offsets [0, 4] hold 4"},
		"overlap": {safetensors([]byte(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`), 8),
			"tensors a and b share bytes"},
		"overlap behind an empty one": {safetensors([]byte(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"e":{"dtype":"F32","shape":[0],"data_offsets":[4,4]},`+
			`"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`), 8), "tensors a and b share bytes"},
		"named twice": {safetensors([]byte(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`), 8),
			"names a twice"},
	}
	for name, x := range cases {
		t.Run(name, func(t *testing.T) {
			dir := write(t, map[string]any{"model.safetensors": x.file})
			_, _, err := readHeader(dir, "model.safetensors")
			wantErr(t, err, errs.KindValue, filepath.Join(dir, "model.safetensors"), x.want)
		})
	}
}

func TestHeaderAccepts(t *testing.T) {
	for name, file := range map[string][]byte{
		"padding":       safetensors([]byte(`{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}    `), 4),
		"bytes after":   safetensors([]byte(`{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`), 9),
		"a hole":        safetensors([]byte(`{"w":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}`), 12),
		"a new key":     safetensors([]byte(`{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"note":1}}`), 4),
		"empty tensors": safetensors([]byte(`{"w":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"v":{"dtype":"F32","shape":[3,0],"data_offsets":[0,0]}}`), 0),
	} {
		if _, _, err := readHeader(write(t, map[string]any{"m": file}), "m"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNotAFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "model.safetensors"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, _, err := readHeader(dir, "model.safetensors")
	wantErr(t, err, errs.KindOS, "model.safetensors is not a regular file")
	_, _, err = readHeader(dir, "model-2.safetensors")
	wantErr(t, err, errs.KindNotFound, "model-2.safetensors does not exist")
}

// A file's claims about itself must not make us allocate: at most a multiple
// of what it really holds.
func TestAllocationBound(t *testing.T) {
	for name, file := range map[string][]byte{
		"length": binary.LittleEndian.AppendUint64(nil, maxHeaderBytes),
		"shape":  safetensors([]byte(`{"w":{"dtype":"U8","shape":[2147483647,2147483647],"data_offsets":[0,4611686014132420609]}}`), 0),
	} {
		if used := allocated(func() { parseFile(file) }); used > 1<<20 {
			t.Errorf("%s: %d bytes allocated for a file of %d", name, used, len(file))
		}
	}
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func parseFile(file []byte) ([]Tensor, error) {
	header, err := headerBytes(bytes.NewReader(file), int64(len(file)), "f")
	if err != nil {
		return nil, err
	}
	return parseHeader(header, int64(len(file)), "f")
}

func FuzzHeader(f *testing.F) {
	f.Add(table{"a": "BF16 2 3", "b": "U32 4", "c": "F32"}.file())
	f.Add(safetensors([]byte(`{"w":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}}  `), 8))
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0, '{', '}'})
	f.Add(binary.LittleEndian.AppendUint64(nil, 1<<63))
	f.Fuzz(func(t *testing.T, file []byte) {
		var tensors []Tensor
		var err error
		used := allocated(func() { tensors, err = parseFile(file) })
		if limit := uint64(1<<20 + 400*len(file)); used > limit {
			t.Errorf("%d bytes allocated for a file of %d", used, len(file))
		}
		if err != nil {
			if errs.Kind(err) != errs.KindValue {
				t.Errorf("%v is a %s", err, errs.Kind(err))
			}
			return
		}
		var end int64
		for _, x := range tensors {
			size := dtypeBytes[x.DType]
			for _, dim := range x.Shape {
				size *= int64(dim)
			}
			if size != x.Length || x.Offset < lengthBytes || x.Offset+x.Length > int64(len(file)) {
				t.Errorf("%+v in a file of %d bytes", x, len(file))
			}
			if x.Length > 0 && x.Offset < end {
				t.Errorf("%+v begins before %d", x, end)
			}
			end = max(end, x.Offset+x.Length)
		}
	})
}
