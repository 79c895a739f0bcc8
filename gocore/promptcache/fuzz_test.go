package promptcache

import (
	"bytes"
	"testing"

	"axlm/gocore/errs"
	"axlm/gocore/weights"
)

// Run it with -fuzzminimizetime=10x: shrinking what was found takes longer than
// finding it.
//
// Whatever a file holds, it is either refused in words or gives a safetensors
// file that survives being packed.
func FuzzUnpack(f *testing.F) {
	content := safetensors(2, 50)
	f.Add(frameOf(content))
	f.Add(streamOf(content))
	f.Add(append(frameOf(content[:40]), frameOf(content[40:])...))
	f.Add(append(frameOf(content[:40]), streamOf(content[40:])...))
	f.Add([]byte{0x50, 0x2A, 0x4D, 0x18, 0, 0, 0, 0})
	f.Add(content)
	f.Fuzz(func(t *testing.T, data []byte) {
		path := write(t, "fuzz.safetensors.zst", data)
		got, err := unpackLimit(t, path, 1<<20)
		if err != nil {
			if errs.Kind(err) != errs.KindValue {
				t.Fatalf("%s: %v", errs.Kind(err), err)
			}
			return
		}
		if _, err := weights.Tensors(bytes.NewReader(got), int64(len(got)), "content"); err != nil {
			t.Fatalf("unpacked what is no safetensors file: %v", err)
		}
		if again, err := unpack(t, packedFile(t, got)); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("does not survive packing: %v", err)
		}
	})
}
