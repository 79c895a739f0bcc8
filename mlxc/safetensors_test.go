package mlxc

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func cpuStream(t *testing.T) Stream {
	t.Helper()
	stream, err := DefaultStream(Device{Type: CPU})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stream.Free)
	return stream
}

func TestSafetensorsRoundTrip(t *testing.T) {
	s := newScope(t)
	path := filepath.Join(t.TempDir(), "ä.safetensors")
	arrays := map[string]Array{
		"a": s.FromFloat32s([]float32{1, -2, 0.5}),
		"b": s.Full(BFloat16, 3, 2, 2),
		"c": s.Exp(s.Zeros(Float32, 2)), // not evaluated yet
	}
	if err := SaveSafetensors(path, arrays, map[string]string{"format": "mlx", "note": "x=y"}); err != nil {
		t.Fatal(err)
	}
	loaded, meta, err := LoadSafetensors(path, cpuStream(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded) != len(arrays) || len(meta) != 2 || meta["format"] != "mlx" || meta["note"] != "x=y" {
		t.Errorf("got %v and %v", loaded, meta)
	}
	for name, a := range loaded {
		if a.DType() != arrays[name].DType() || !slices.Equal(a.Shape(), arrays[name].Shape()) {
			t.Errorf("%s: got %v, want %v", name, a, arrays[name])
		}
		if err := Eval(a); err != nil {
			t.Fatal(err)
		}
		sameValues(t, values(t, s, a), values(t, s, arrays[name]))
		a.Free()
	}
}

// A file written by hand, so that reading and writing cannot agree on an error.
func TestLoadSafetensorsFile(t *testing.T) {
	s := newScope(t)
	header, err := json.Marshal(map[string]any{
		"w": map[string]any{"dtype": "F32", "shape": []int{2, 1}, "data_offsets": []int{0, 8}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	file = append(file, header...)
	for _, v := range []float32{1.5, -4} {
		file = binary.LittleEndian.AppendUint32(file, math.Float32bits(v))
	}
	path := filepath.Join(t.TempDir(), "w.safetensors")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	arrays, meta, err := LoadSafetensors(path, cpuStream(t))
	if err != nil || len(arrays) != 1 || len(meta) != 0 {
		t.Fatalf("got %v, %v, %v", arrays, meta, err)
	}
	w := s.Own(arrays["w"])
	if !slices.Equal(w.Shape(), []int{2, 1}) {
		t.Errorf("got %v", w)
	}
	sameValues(t, values(t, s, w), []float64{1.5, -4})
}

func TestSafetensorsErrors(t *testing.T) {
	s := newScope(t)
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing.safetensors")
	if _, _, err := LoadSafetensors(missing, cpuStream(t)); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("reading a missing file: %v", err)
	}
	broken := filepath.Join(dir, "broken.safetensors")
	if err := os.WriteFile(broken, []byte("no header here"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LoadSafetensors(broken, cpuStream(t)); err == nil {
		t.Error("read a broken file")
	}
	if err := SaveSafetensors(filepath.Join(dir, "none", "x.safetensors"), map[string]Array{"a": s.Ones(Float32, 1)}, nil); err == nil {
		t.Error("wrote into a folder that does not exist")
	}
	err := SaveSafetensors(filepath.Join(dir, "x.safetensors"), map[string]Array{"empty": {}}, nil)
	if err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("writing no array: %v", err)
	}
}
